"""One data folder with open, committed and aborted transactions, served by Kafka, then Milena, then Kafka, then Milena:
each continues the transactions and the groups' offsets of the other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from milena.client.cluster import Cluster
from milena.client.membership import GroupMetadata
from milena.client.transactional import TransactionalProducer
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.runtime.process import real_runtime
from tests.oracle.differential.sides import Line, Side
from tests.oracle.kafka_node import KafkaNode, running_kafka, started_kafka
from tests.oracle.milena_node import running_milena
from tests.oracle.tools import TOPICS, Tools
from tests.wire.waiting import wait_until

FEATURES: Final = {f"{name}.version": 0 for name in ("group", "share", "streams", "eligible.leader.replicas")}
"""The feature levels of a new Milena cluster."""
TOPIC, GROUP = "out", "readers"
ENDED, LEFT, GONE = 0, 2, 4
"""The first partition for the offsets of transactions that are ended by the same broker, that are committed by the next
one, and that are aborted because another process has the same transactional id."""
UNSTABLE: Final = ErrorCode.UNSTABLE_OFFSET_COMMIT
VERSIONS: Final = (1, 2)
"""The transaction versions of the producers."""

pytestmark = pytest.mark.costly


class Clients:
    """For each transaction version some producers, which continue while the broker behind their address is replaced.
    They have different partitions for their offsets."""

    def __init__(self, node: KafkaNode) -> None:
        self._server = "{}:{}".format(*node.broker)
        self._runner = asyncio.Runner()
        self._line = Line(Side("the broker", *node.broker, node.node_id))
        self._cluster = self._runner.run(self._connect(node.broker))
        self._producers: dict[tuple[int, str], TransactionalProducer] = {}
        self.expected: list[bytes] = []
        """The records of committed transactions."""

    async def _connect(self, address: tuple[str, int]) -> Cluster:
        return Cluster(real_runtime(), [address])

    def begin(self, name: str, offset: int, first: int = 0) -> None:
        """Write a record, and an offset of partition ``first`` + version, in a transaction of each version."""
        for version in VERSIONS:
            self._runner.run(self._begin(version, name, offset, first + version))

    async def _begin(self, version: int, name: str, offset: int, partition: int) -> None:
        key = version, name
        producer = self._producers.get(key)
        if producer is None:
            producer = TransactionalProducer(self._cluster, f"{name}-{version}", newest=version)
            self._producers[key] = producer
            await producer.init()
        producer.begin()
        await producer.send(TOPIC, f"{name} {version} {offset}".encode(), partition=0)
        await producer.send_offsets({(TOPIC, partition): offset}, GroupMetadata(GROUP))

    def commit(self, name: str, offset: int) -> None:
        for version in VERSIONS:
            self._runner.run(self._producers[version, name].commit())
            self.expected.append(f"{name} {version} {offset}".encode())

    def abort(self, name: str) -> None:
        for version in VERSIONS:
            self._runner.run(self._producers[version, name].abort())

    def fence(self, name: str) -> None:
        """Another process with the same transactional ids begins, so that the open transactions are aborted."""
        for version in VERSIONS:
            producer = TransactionalProducer(self._cluster, f"{name}-{version}", newest=version)
            self._runner.run(producer.init())

    def offset_of(self, partition: int) -> int | ErrorCode:
        asked = [{"name": TOPIC, "partition_indexes": [partition]}]
        groups = [{"group_id": GROUP, "topics": asked, "member_id": None, "member_epoch": -1}]
        body = messages.encode_request(ApiKey.OFFSET_FETCH, 9, groups=groups, require_stable=True)
        self._line.send(ApiKey.OFFSET_FETCH, 9, body)
        answer: Any = self._line.receive(ApiKey.OFFSET_FETCH, 9)
        if not isinstance(answer, dict) or answer["groups"][0]["error_code"]:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        (found,) = answer["groups"][0]["topics"][0]["partitions"]
        return ErrorCode(found["error_code"]) if found["error_code"] else int(found["committed_offset"])

    def expect(self, first: int, expected: int | ErrorCode) -> None:
        """Wait for the group's offset in the partition of each version. ``first``: as in ``begin``."""
        for version in VERSIONS:
            self._expect(first + version, expected)

    def _expect(self, partition: int, expected: int | ErrorCode) -> None:
        wait_until(lambda: self.offset_of(partition) == expected, f"offset {expected} of partition {partition}", 30)

    def read(self) -> list[bytes]:
        """The committed records from the beginning, up to the last stable offset."""
        settings = {"bootstrap.servers": self._server, "group.id": "none", "log_level": 0, "check.crcs": True}
        consumer = Consumer(settings | {"isolation.level": "read_committed", "enable.partition.eof": True})
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        found: list[bytes] = []
        while (record := consumer.poll(30)) is not None and record.error() is None:
            found.append(record.value() or b"")
        assert record is not None, "the end was not reached"
        consumer.close()
        return found

    def close(self) -> None:
        self._cluster.close()
        self._line.close()
        self._runner.close()


def one_broker(clients: Clients, number: int) -> None:
    """What one broker does: it ends the transactions that the one before has left open, and leaves new ones open."""
    if number:
        clients.expect(ENDED, number * 10 - 9)
        clients.expect(LEFT, UNSTABLE)
        clients.expect(GONE, UNSTABLE)
        clients.commit("left", number)
        clients.expect(LEFT, number)
        clients.fence(f"gone {number}")
        clients.expect(GONE, -1 if number == 1 else number - 1)
    clients.begin("ended", number * 10 + 1, ENDED)
    clients.commit("ended", number * 10 + 1)
    clients.expect(ENDED, number * 10 + 1)
    clients.begin("ended", number * 10 + 2, ENDED)
    clients.abort("ended")
    clients.expect(ENDED, number * 10 + 1)
    if number:
        clients.begin("other", number, GONE)
        clients.commit("other", number)
        clients.expect(GONE, number)
    clients.begin("left", number + 1, LEFT)
    clients.begin(f"gone {number + 1}", 1_000, GONE)
    clients.expect(LEFT, UNSTABLE)
    clients.expect(GONE, UNSTABLE)


def test_kafka_then_milena_twice(tools: Tools, tmp_path: Path) -> None:
    # A killed broker is not registered again before its previous session has ended.
    settings: dict[str, Any] = {"broker_session_timeout_ms": 1500, "broker_heartbeat_interval_ms": 300}
    with running_kafka(tmp_path, features=FEATURES, static_voter=True, **settings) as node:
        server = ("--bootstrap-server", "{}:{}".format(*node.broker))
        tools(TOPICS, *server, "--create", "--topic", TOPIC, "--partitions", "7")
        clients = Clients(node)
        one_broker(clients, 0)
    # The broker was killed.
    file = tmp_path / "kafka.properties"
    with running_milena(file):
        one_broker(clients, 1)
    with started_kafka(file, node.broker):
        one_broker(clients, 2)
    with running_milena(file):
        one_broker(clients, 3)
        clients.fence("left")
        clients.fence("gone 4")
        clients.expect(LEFT, 3)
        assert sorted(clients.read()) == sorted(clients.expected)
    clients.close()
    said = (tmp_path / "kafka.out").read_text()
    complaints = [line for line in said.splitlines() if " ERROR " in line]
    assert not complaints, "\n".join(complaints)
