"""What tests of compaction on processes have in common: the broker's workers, and what a consumer finds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from milena.testing.local_cluster import LocalCluster


def broker_pid(cluster: LocalCluster) -> int:
    (broker,) = cluster.brokers
    assert broker.pid is not None
    return broker.pid


def workers(pid: int) -> list[int]:
    """The processes that a broker has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def read(bootstrap: str, topic: str) -> tuple[int, Mapping[bytes, bytes | None]]:
    """How many records there are, and the last of each key."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: dict[bytes, bytes | None] = {}
    count = position = 0
    while position < end:
        for record in consumer.consume(1000, timeout=5):
            assert record.error() is None
            key, offset = record.key(), record.offset()
            assert isinstance(key, bytes)
            assert offset is not None
            found[key] = record.value()
            count, position = count + 1, offset + 1
    consumer.close()
    return count, found
