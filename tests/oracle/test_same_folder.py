"""One data folder, served by Kafka, then Milena, then Kafka: each accepts the files of the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.oracle.kafka_node import KafkaNode, running_kafka, started_kafka
from tests.oracle.milena_node import running_milena
from tests.oracle.tools import GROUPS, TOPICS, Tools
from tests.wire.compacted import is_clean
from tests.wire.waiting import wait_until

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FEATURES: Final = {
    f"{name}.version": 0 for name in ("group", "transaction", "share", "streams", "eligible.leader.replicas")
}
"""The feature levels of a new Milena cluster."""
TOPIC, COMPACTED, GROUP = "kept", "cleaned", "keepers"


class Clients:
    """A producer for each codec and a group, which continue while the broker behind their address is replaced."""

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


class Updates:
    """A compacted topic. Each key has its last value, whether Kafka or Milena has cleaned the log."""

    def __init__(self, node: KafkaNode) -> None:
        self._server = {"bootstrap.servers": "{}:{}".format(*node.broker), "log_level": 0}
        # A producer's last batch is kept even if its records are removed.
        settings = {"enable.idempotence": True, "batch.num.messages": 10, "reconnect.backoff.max.ms": 200}
        self._producers = [Producer(self._server | settings | {"compression.type": codec}) for codec in CODECS]
        self._log_dir = str(node.log_dir)
        self._last: dict[bytes, bytes | None] = {}
        self._left: list[tuple[int, bytes, bytes | None]] = []

    def write(self, who: str) -> None:
        """Update all keys and delete some with each codec, and wait until all closed segments are cleaned."""
        for codec, producer in zip(CODECS, self._producers, strict=True):
            for number in range(200):
                key, value = b"key %d" % (number % 40), f"{who} {codec} {number}".encode()
                self._last[key] = None if number % 13 == 5 else value
                producer.produce(COMPACTED, self._last[key], key, 0)
            assert producer.flush(30) == 0
        wait_until(lambda: is_clean(self._log_dir, f"{COMPACTED}-0"), f"{who} to clean", 60)
        found = self._read()
        assert len(found) < 200
        assert {key: value for _, key, value in found} == self._last
        self._left = found

    def check(self) -> None:
        """Assert that the topic has the values from before the change of the broker."""
        assert self._read() == self._left

    def _read(self) -> list[tuple[int, bytes, bytes | None]]:
        settings = {"group.id": "none", "enable.partition.eof": True, "check.crcs": True, "fetch.wait.max.ms": 50}
        consumer = Consumer(self._server | settings)
        consumer.assign([TopicPartition(COMPACTED, 0, OFFSET_BEGINNING)])
        found: list[tuple[int, bytes, bytes | None]] = []
        while (record := consumer.poll(30)) is not None and record.error() is None:
            offset, key = record.offset(), record.key()
            assert offset is not None and isinstance(key, bytes)
            found.append((offset, key, record.value()))
        assert record is not None, "the end was not reached"
        consumer.close()
        return found


def test_kafka_then_milena_then_kafka(tools: Tools, tmp_path: Path) -> None:
    # A killed broker is not registered again before its previous session has ended.
    settings: dict[str, Any] = {"broker_session_timeout_ms": 1500, "broker_heartbeat_interval_ms": 300}
    settings |= {"log_cleaner_backoff_ms": 200, "replica_high_watermark_checkpoint_interval_ms": 300}
    with running_kafka(tmp_path, features=FEATURES, static_voter=True, **settings) as node:
        server = ("--bootstrap-server", "{}:{}".format(*node.broker))
        tools(TOPICS, *server, "--create", "--topic", TOPIC, "--config", "segment.bytes=1048576")
        options = ("cleanup.policy=compact", "internal.segment.bytes=3000", "min.cleanable.dirty.ratio=0.01")
        words = [word for option in options for word in ("--config", option)]
        tools(TOPICS, *server, "--create", "--topic", COMPACTED, *words)
        clients, updates = Clients(node), Updates(node)
        clients.produce("kafka")
        clients.consume(100)
        updates.write("kafka")
    # The broker was killed.
    file = tmp_path / "kafka.properties"
    with running_milena(file):
        clients.produce("milena")
        clients.consume(200)
        updates.check()
        updates.write("milena")
        described = tools(TOPICS, *server, "--describe", "--topic", TOPIC)
        assert "segment.bytes=1048576" in described
        tools(TOPICS, *server, "--create", "--topic", "more", "--partitions", "3")
    with started_kafka(file, node.broker):
        clients.produce("kafka again")
        clients.consume(450)
        updates.check()
        updates.write("kafka again")
        assert "PartitionCount: 3" in tools(TOPICS, *server, "--describe", "--topic", "more")
        offsets = tools(GROUPS, *server, "--describe", "--group", GROUP)
        assert re.search(rf"{GROUP}\s+{TOPIC}\s+0\s+750\s+750\s+0", offsets)
    assert clients.read == clients.sent
    said = (tmp_path / "kafka.out").read_text()
    complaints = [line for line in said.splitlines() if " ERROR " in line and "Could not find offset index" not in line]
    assert not complaints, "\n".join(complaints)
