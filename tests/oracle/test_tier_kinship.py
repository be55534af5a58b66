"""A Kafka broker and a Milena broker with Milena's controller share one tier: each starts as follower from segments
that the other has copied, and serves them as leader."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from milena.testing.local_cluster import LocalCluster
from tests.oracle.complaints import COMPLAINTS
from tests.oracle.joining import KAFKA, JoiningKafka, joined_kafka
from tests.oracle.tier_settings import tier_settings
from tests.oracle.tools import DUMP, Tools
from tests.wire.admin import Place, Places, place_topic
from tests.wire.command import milena
from tests.wire.waiting import wait_until

OURS = 1
TOPIC, METADATA = "kin", "__remote_log_metadata"
RECORDS = 100
"""Number of records of 1,000 bytes, each in a separate batch."""
CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "20000",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}
DECODER = "--remote-log-metadata-decoder"


class Shared:
    """The topic, the tier, and the logs of both brokers."""

    def __init__(self, cluster: LocalCluster, kin: JoiningKafka, tier: Path) -> None:
        self.bootstrap = cluster.bootstrap
        self.cluster = cluster
        self.tier = tier
        self.written: list[bytes] = []
        self._folders = {OURS: Path(cluster.nodes[OURS].log_dirs[0]), KAFKA: kin.data}
        self._places = Places(cluster.bootstrap, TOPIC)
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "log_level": 0,
            }
        )

    def write(self) -> None:
        """Write with one idempotent producer in all calls, whose producer state each leader must have."""
        for _ in range(RECORDS):
            self.written.append(b"%-1000d" % len(self.written))
            self._producer.produce(TOPIC, self.written[-1], partition=0)
        assert self._producer.flush(30) == 0

    def names(self, broker: int) -> list[str]:
        """Return the log files of a broker's local replica."""
        return sorted(path.name for path in (self._folders[broker] / f"{TOPIC}-0").glob("*.log"))

    def copied(self) -> int:
        return len(list(self.tier.glob(f"kafka-tiered-storage/{TOPIC}-0-*/*.log")))

    def until_in_tier(self, *brokers: int) -> None:
        """Wait until only the active segment is left on the brokers' local disks."""

        def is_there() -> bool:
            found = [self.names(broker) for broker in brokers]
            return all(len(names) == 1 and int(names[0][:-4]) > len(self.written) - 20 for names in found)

        wait_until(is_there, f"closed segments to leave the disks of {brokers}", 60)

    def epochs(self, broker: int) -> str:
        return (self._folders[broker] / f"{TOPIC}-0" / "leader-epoch-checkpoint").read_text()

    def move(self, *replicas: int) -> None:
        """Reassign to these replicas; return when the first of them leads and all are in the ISR."""
        to = ("-b", self.bootstrap)
        milena("reassign", "start", f"{TOPIC}:0={','.join(map(str, replicas))}", *to)
        wait_until(lambda: self._places.now()[0].isr == set(replicas), f"{replicas} to be in sync", 60)
        if self._places.now()[0].leader != replicas[0]:
            milena("elect", f"{TOPIC}:0", *to)
        wait_until(
            lambda: self._places.now() == [Place(replicas[0], frozenset(replicas))], f"{replicas[0]} to lead", 30
        )

    def read(self) -> None:
        """Assert that the current leader serves all records from offset 0."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "none", "log_level": 0})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found = consumer.consume(len(self.written), timeout=40)
        assert [(one.offset(), one.value()) for one in found] == list(enumerate(self.written))
        consumer.close()


def test_each_broker_starts_from_segments_of_the_other_and_serves_them(tools: Tools, tmp_path: Path) -> None:
    """(Takes about 30 s: a Kafka broker starts, and four replicas are reassigned.)"""
    settings = tier_settings(tmp_path / "tier") | {"auto.leader.rebalance.enable": "false"}
    with LocalCluster.start(tmp_path / "milena", brokers=1, overrides=settings) as cluster:
        with joined_kafka(cluster, tmp_path / "kafka", settings) as kin:
            place_topic(cluster.bootstrap, TOPIC, [[OURS]], CONFIG)
            shared = Shared(cluster, kin, tmp_path / "tier")
            shared.write()
            shared.until_in_tier(OURS)
            shared.read()
            ours = shared.copied()
            shared.move(KAFKA, OURS)
            assert shared.names(KAFKA) == shared.names(OURS)
            shared.read()
            shared.write()
            shared.until_in_tier(OURS, KAFKA)
            assert shared.copied() > ours
            shared.read()
            shared.move(KAFKA)
            shared.move(OURS, KAFKA)
            assert shared.names(KAFKA) == shared.names(OURS)
            shared.read()
            shared.write()
            shared.until_in_tier(OURS, KAFKA)
            shared.read()
            shared.move(KAFKA, OURS)
            shared.read()
            shared.write()
            shared.until_in_tier(OURS, KAFKA)
            wait_until(lambda: shared.epochs(OURS) == shared.epochs(KAFKA), "both to know the same leader epochs")
            assert len(shared.epochs(OURS).splitlines()) > 5
            copied = shared.copied()
        cluster.stop()
        dumped = "".join(
            tools(DUMP, DECODER, "--print-data-log", "--files", str(file))
            for folder in (Path(cluster.nodes[OURS].log_dirs[0]), kin.data)
            for file in folder.glob(f"{METADATA}-*/*.log")
        )
        assert not [word for word in COMPLAINTS if word in dumped]
        assert dumped.count("COPY_SEGMENT_FINISHED") == copied
