"""KAFKA-20732: a fresh leader does not know yet how far its log is copied, and counts twice what is here and there.

Kafka 4.3.1 seeds the offset up to which the log is copied in its copy task alone. Where that is later than the task
that expires, or does not run since copying is switched off, all local segments count beside the tier's: what
``retention.bytes`` still wants goes from both tiers. The second case needs no race, and is the one shown here: all of
the log lies in the tier and, but for the active segment, again on the disk; copying is switched off; the node is killed
and started again.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from milena.testing.local_cluster import LocalCluster
from tests.oracle.kafka_node import running_kafka, started_kafka
from tests.oracle.tier_settings import tier_settings
from tests.wire.admin import alter_topic, create_topic
from tests.wire.waiting import wait_until

TOPIC = "kept"
RECORDS = 100
"""Of 1,000 bytes, each in a batch of its own."""
SEGMENT = 20_000
CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": str(SEGMENT),
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}
LOOKS = 3

pytestmark = pytest.mark.timeout(180)


class Kept:
    """The topic: its files here and there, and its limit."""

    def __init__(self, bootstrap: str, data: Path, tier: Path) -> None:
        self.bootstrap = bootstrap
        self._data, self._tier = data, tier

    def local(self) -> dict[int, int]:
        """Base offsets and bytes of the segments on the disk."""
        return sizes(self._data.glob(f"{TOPIC}-0/*.log"))

    def remote(self) -> dict[int, int]:
        return sizes(self._tier.glob(f"kafka-tiered-storage/{TOPIC}-0-*/*.log"))

    def size(self) -> int:
        """Of the log, each record counted once."""
        return sum((self.remote() | self.local()).values())

    def first(self) -> int:
        """The log start offset, as consumers are told it; -1 while nobody leads."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "none", "log_level": 0})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=20, cached=False)[0])
        except KafkaException:
            return -1
        finally:
            consumer.close()

    def fill(self) -> None:
        """Until all closed segments are in the tier, and still on the disk."""
        create_topic(self.bootstrap, TOPIC, partitions=1, replicas=1, config=CONFIG)
        producer = Producer({"bootstrap.servers": self.bootstrap, "batch.num.messages": 1, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%-1000d" % number, partition=0)
        assert producer.flush(30) == 0
        wait_until(
            lambda: len(self.remote()) > 3 and [*self.remote()] == [*self.local()][:-1], "the log to be copied", 60
        )

    def limit(self) -> int:
        """Allow a little more than there is, and have no more copied; the limit."""
        limit = self.size() + SEGMENT // 2
        alter_topic(self.bootstrap, TOPIC, {"retention.bytes": str(limit), "remote.log.copy.disable": "true"})
        return limit


def sizes(logs: Iterable[Path]) -> dict[int, int]:
    """Bytes by base offset, in order."""
    found = {}
    for path in sorted(logs, key=lambda path: path.name):
        with suppress(FileNotFoundError):  # it has just been deleted
            found[int(path.name[:20])] = path.stat().st_size
    return found


def test_kafka_deletes_from_both_tiers_what_retention_wants(tmp_path: Path) -> None:
    """(20 s, more on a machine that is busy: a Kafka node starts twice.)"""
    settings = tier_settings(tmp_path / "tier", metadata_partitions=1)
    folder = tmp_path / "kafka"
    with running_kafka(folder, **settings) as node:
        kept = Kept("{}:{}".format(*node.broker), node.log_dir, tmp_path / "tier")
        kept.fill()
        limit, size, before = kept.limit(), kept.size(), kept.local()
        assert (size < limit, kept.first()) == (True, 0)
    with started_kafka(folder / "kafka.properties", node.broker):
        wait_until(
            lambda: 0 < kept.first() == min(kept.remote(), default=0) == min(kept.local(), default=0),
            "Kafka to move the log start, and to delete what is below it here and there",
            60,
        )
        assert kept.first() in before, "whole segments go"
        assert kept.size() < limit - SEGMENT


def test_ours_keeps_all_of_it(tmp_path: Path) -> None:
    """With the same history. Looks at the retention are called for, so that nothing is to be waited for."""
    settings = tier_settings(tmp_path / "tier", metadata_partitions=1)
    with LocalCluster.start(tmp_path / "milena", brokers=1, overrides=settings, lab=True) as cluster:
        kept = Kept(cluster.bootstrap, Path(cluster.nodes[1].log_dirs[0]), tmp_path / "tier")
        kept.fill()
        limit, size, local, remote = kept.limit(), kept.size(), kept.local(), kept.remote()
        assert (size < limit, kept.first()) == (True, 0)
        cluster.kill(1)
        cluster.start_node(1)
        wait_until(lambda: kept.first() == 0, "the node to lead again")
        for _ in range(LOOKS):
            cluster.lab_commands(1).call("tiering", topic=TOPIC, partition=0)
            cluster.lab_commands(1).call("retention")
        assert (kept.first(), kept.local(), kept.remote()) == (0, local, remote)
