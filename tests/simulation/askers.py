"""Sends single requests to a simulated node, and counts the work on each."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from milena.client.transactional import TransactionalProducer
from milena.lab.cluster import SimulatedCluster
from milena.node.api import Caller, RequestContext
from milena.node.serving.dispatch import Dispatcher
from milena.protocol.api_keys import ApiKey
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests.headers import parse_request_header, request_header
from milena.protocol.schemas.registry import Role
from tests.simulation.counted_work import Work
from tests.simulation.many_elements import Elements, Path, body

FEW = 70
SIZES = (FEW, 2 * FEW, 4 * FEW)
BIG = "big"
"""A topic with as many partitions as the longest array has elements; ``t0``, ``t1``, ... have one each."""
FIXED: dict[str, Any] = {
    "acks": 1,
    "allow_auto_topic_creation": False,
    "broker_id": 1,
    "config_operation": 0,
    "generation_id": 1,
    "key_type": 0,
    "num_partitions": 1,
    "rebalance_timeout": 1,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_type": 2,
    "session_epoch": -1,
    "session_id": 0,
    "session_timeout": 10_000,
    "producer_epoch": 0,
    "generation_id_or_member_epoch": -1,
    "group_instance_id": None,
    "current_leader_epoch": -1,
}
WITHOUT_TRANSACTION = (ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID)
"""APIs that are asked without a transactional id."""
NUMBERED = frozenset({"partition", "partition_index", "partition_indexes", "partitions", "partition_id"})


class Ended:
    """A connection that only notes that a response was sent or that it was closed."""

    def __init__(self) -> None:
        self.closed = False
        self.event = asyncio.Event()

    def answered(self, ctx: RequestContext) -> None:
        self.event.set()

    def close(self, reason: str) -> None:
        self.closed = True
        self.event.set()

    def hold(self, ctx: RequestContext) -> None: ...

    def release(self, ctx: RequestContext) -> None: ...


class Asker:
    """Sends requests of any size to one node, and counts its work on each."""

    def __init__(self, cluster: SimulatedCluster, role: Role, work: Work) -> None:
        node: Any = cluster.brokers[1] if role is Role.BROKER else cluster.controller
        assert cluster.controller is not None
        self.dispatcher: Dispatcher = node.server.dispatcher
        self.state = cluster.controller.state
        self.listener = "PLAINTEXT" if role is Role.BROKER else "CONTROLLER"
        self.work = work
        self.runs = 0

    def value(self, elements: Elements, name: str, kind: str, number: int | None) -> Any:
        """The value of a field of the request."""
        if name in FIXED:
            return FIXED[name]
        if name == "broker_epoch":
            return self.state.image.brokers[1].epoch
        at = 0 if elements is Elements.SAME else number
        fresh = elements is Elements.FRESH and number is not None
        if kind == "uuid":
            known = self.state.image.topics[BIG if at is None else f"t{at}"].id
            return UUID(int=(self.runs << 64) + (number or 0) + 1_000) if fresh else known
        if kind == "string":
            if at is None:
                return BIG if "topic" in name or name == "name" else f"of-run-{self.runs}"
            return f"fresh-{self.runs}-{number}" if fresh else f"t{at}"
        if kind == "records":
            return build_batch([Record(0, 0, None, b"x")], base_timestamp=1_700_000_000_000)
        if kind == "bytes":
            return b"some"
        if kind in ("bool", "float64"):
            return kind == "float64" and 0.5
        if kind.startswith("timedelta"):
            return 1
        return (at or 0) % 128 if kind == "int8" else (at or 0) if name in NUMBERED or number is not None else 0

    async def ask(self, key: ApiKey, version: int, path: Path, elements: Elements, count: int) -> tuple[int, int]:
        """The lines and comparisons of one request. An error response or a closed connection ends it too."""
        with self.work.counting():
            await self.send(key, version, path, elements, count)
            counted = self.work.lines, self.work.comparisons
        await asyncio.sleep(2)
        return counted

    async def send(self, key: ApiKey, version: int, path: Path, elements: Elements, count: int) -> None:
        """Send one request; return when it is answered."""
        self.runs += 1

        def leaf(name: str, kind: str, number: int | None) -> Any:
            # Only the elements of the long array have numbers; a topic with one partition has number 0.
            if number is not None and name in NUMBERED and not self._is_long(path, name):
                return 0
            if name == "transactional_id" and key in WITHOUT_TRANSACTION:
                return None
            return self.value(elements, name, kind, number)

        data = request_header(key, version, 1, "asker") + body(key, version, path, count, leaf, lambda at: at)
        await self._run(data)

    async def _run(self, data: bytes) -> None:
        header, rest = parse_request_header(memoryview(bytearray(data)))
        api = self.dispatcher.find(header.api_key, header.api_version)
        assert api is not None
        ended = Ended()
        self.dispatcher.run(RequestContext(header, api, Caller(self.listener, "127.0.0.1"), ended, 0.0), rest)
        async with asyncio.timeout(20):
            await ended.event.wait()

    @staticmethod
    def _is_long(path: Path, name: str) -> bool:
        return path[-1] in ("partitions", "partition_indexes", name)


async def prepare(cluster: SimulatedCluster) -> None:
    """Create the topics and the transactional ids that the requests name: of a number each, which is also the producer
    id."""
    topics = [{"name": f"t{at}", "num_partitions": 1} for at in range(SIZES[-1])]
    topics.append({"name": BIG, "num_partitions": SIZES[-1]})
    async with cluster.client() as client:
        answer = await client.to("broker-1", 9092).request(
            ApiKey.CREATE_TOPICS,
            topics=[topic | {"replication_factor": 1, "assignments": [], "configs": []} for topic in topics],
            timeout_ms=30_000,
        )
    assert not any(topic.error_code for topic in answer.topics)
    while cluster.brokers[1].partitions.find(BIG, SIZES[-1] - 1) is None:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    async with cluster.client() as client:
        for at in range(SIZES[-1]):
            producer = TransactionalProducer(client, f"t{at}")
            assert (await producer.init()).producer_id == at
            await producer.close()
