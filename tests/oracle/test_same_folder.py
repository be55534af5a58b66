"""One folder, served by Kafka, by Milena, by Kafka again: neither finds anything amiss in what the other left."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer

from tests.oracle.kafka_node import KafkaNode, running_kafka, started_kafka
from tests.oracle.milena_node import running_milena
from tests.oracle.tools import GROUPS, TOPICS, Tools

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FEATURES: Final = {
    f"{name}.version": 0 for name in ("group", "transaction", "share", "streams", "eligible.leader.replicas")
}
"""Those of a new Milena cluster."""
TOPIC, GROUP = "kept", "keepers"

pytestmark = pytest.mark.timeout(150)


class Clients:
    """A producer of each codec and a group, which live on while the broker changes behind their address."""

    def __init__(self, node: KafkaNode) -> None:
        self._server = {"bootstrap.servers": "{}:{}".format(*node.broker)}
        quiet = {"log_level": 0, "reconnect.backoff.max.ms": 200, "enable.idempotence": True}
        self._producers = [Producer(self._server | quiet | {"compression.type": codec}) for codec in CODECS]
        self.sent: list[str] = []
        self.read: list[str] = []

    def produce(self, who: str) -> None:
        for producer, codec in zip(self._producers, CODECS, strict=True):
            for number in range(50):
                self.sent.append(f"{who} {codec} {number}")
                producer.produce(TOPIC, self.sent[-1])
            assert producer.flush(30) == 0

    def consume(self, count: int) -> None:
        consumer = Consumer(self._server | {"group.id": GROUP, "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        found = consumer.consume(count, timeout=30)
        self.read += [(record.value() or b"").decode() for record in found]
        assert len(found) == count
        consumer.commit(asynchronous=False)
        consumer.close()


def test_kafka_then_milena_then_kafka(tools: Tools, tmp_path: Path) -> None:
    # What was killed is not registered anew before its earlier session has run out.
    sessions: dict[str, Any] = {"broker_session_timeout_ms": 1500, "broker_heartbeat_interval_ms": 300}
    with running_kafka(tmp_path, features=FEATURES, static_voter=True, **sessions) as node:
        server = ("--bootstrap-server", "{}:{}".format(*node.broker))
        tools(TOPICS, *server, "--create", "--topic", TOPIC, "--config", "segment.bytes=1048576")
        clients = Clients(node)
        clients.produce("kafka")
        clients.consume(100)
    # It was killed.
    file = tmp_path / "kafka.properties"
    with running_milena(file):
        clients.produce("milena")
        clients.consume(200)
        described = tools(TOPICS, *server, "--describe", "--topic", TOPIC)
        assert "segment.bytes=1048576" in described
        tools(TOPICS, *server, "--create", "--topic", "more", "--partitions", "3")
    with started_kafka(file, node.broker):
        clients.produce("kafka again")
        clients.consume(450)
        assert "PartitionCount: 3" in tools(TOPICS, *server, "--describe", "--topic", "more")
        offsets = tools(GROUPS, *server, "--describe", "--group", GROUP)
        assert re.search(rf"{GROUP}\s+{TOPIC}\s+0\s+750\s+750\s+0", offsets)
    assert clients.read == clients.sent
    said = (tmp_path / "kafka.out").read_text()
    complaints = [line for line in said.splitlines() if " ERROR " in line and "Could not find offset index" not in line]
    assert not complaints, "\n".join(complaints)
