"""KAFKA-20732: a new leader does not know yet how far its log is copied, and counts segments in both tiers twice.

Kafka up to 4.3.1 initialises the highest offset in remote storage only in its copy task. If that task runs after the
task that expires segments, or does not run because copying is disabled, Kafka counts all local segments besides those
in remote storage, and deletes records from both tiers that ``retention.bytes`` should keep. Kafka 4.4.0 keeps them. The
second case needs no race and is tested here: all closed segments are in the tier and on the local disk; copying is
disabled; the node is killed and restarted.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from milena.testing.local_cluster import LocalCluster
from tests.oracle.tier_settings import tier_settings
from tests.wire.admin import alter_topic, create_topic
from tests.wire.waiting import wait_until

TOPIC = "kept"
RECORDS = 100
"""Number of records of 1,000 bytes, each in a separate batch."""
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


class Kept:
    """The topic: its local and remote files, and its retention limit."""

    def __init__(self, bootstrap: str, data: Path, tier: Path) -> None:
        self.bootstrap = bootstrap
        self._data, self._tier = data, tier

    def local(self) -> dict[int, int]:
        """Return base offset and size of each local segment."""
        return sizes(self._data.glob(f"{TOPIC}-0/*.log"))

    def remote(self) -> dict[int, int]:
        return sizes(self._tier.glob(f"kafka-tiered-storage/{TOPIC}-0-*/*.log"))

    def size(self) -> int:
        """Return the size of the log in bytes, with each segment counted once."""
        return sum((self.remote() | self.local()).values())

    def first(self) -> int:
        """Return the log start offset that consumers get; -1 while the partition has no leader."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "none", "log_level": 0})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=20, cached=False)[0])
        except KafkaException:
            return -1
        finally:
            consumer.close()

    def fill(self) -> None:
        """Write the records; return when all closed segments are in the tier and still on the local disk."""
        create_topic(self.bootstrap, TOPIC, partitions=1, replicas=1, config=CONFIG)
        producer = Producer({"bootstrap.servers": self.bootstrap, "batch.num.messages": 1, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%-1000d" % number, partition=0)
        assert producer.flush(30) == 0
        wait_until(
            lambda: len(self.remote()) > 3 and [*self.remote()] == [*self.local()][:-1], "the log to be copied", 60
        )

    def limit(self) -> int:
        """Set a retention limit a little above the size, and disable copying. Return the limit."""
        limit = self.size() + SEGMENT // 2
        alter_topic(self.bootstrap, TOPIC, {"retention.bytes": str(limit), "remote.log.copy.disable": "true"})
        return limit


def sizes(logs: Iterable[Path]) -> dict[int, int]:
    """Return the size of each log file by base offset, in order."""
    found = {}
    for path in sorted(logs, key=lambda path: path.name):
        with suppress(FileNotFoundError):  # the file has just been deleted
            found[int(path.name[:20])] = path.stat().st_size
    return found


def test_milena_keeps_all_records(tmp_path: Path) -> None:
    """The test triggers the retention checks, so that it need not wait for them."""
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
            cluster.lab_commands(1).call("retain")
        assert (kept.first(), kept.local(), kept.remote()) == (0, local, remote)
