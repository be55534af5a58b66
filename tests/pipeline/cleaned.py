"""A cluster with a compacted topic in its tier, whose leaders let others clean it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import create_topic
from tests.wire.compacted import write_each_key
from tests.wire.tiers import settings
from tests.wire.waiting import wait_until

KEYS, UPDATES = 200, 12
TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "40000",
    "local.retention.bytes": "1",
    "min.cleanable.dirty.ratio": "0.3",
}
COMPACTED = {"cleanup.policy": "compact", **TIERED}
ORDERS = {
    "remote.log.compaction.enable": "true",
    "remote.log.compaction.work.orders.enable": "true",
    "remote.log.compaction.source.retention.ms": "500",
}
ISSUED = "work order issued"
PUBLISHED = "log cleaned in the tier"
REFUSED = "result of a work order refused"


class Cleaned:
    """A topic ``t`` of one partition, on all brokers."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.last: dict[bytes, bytes] = {}

    def write(self, updates: int) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "enable.idempotence": True, "linger.ms": 20})
        for update in range(updates):
            self.last |= write_each_key(producer, KEYS, update)

    def events(self, name: str) -> list[dict[str, object]]:
        lines = (line for broker in self.cluster.brokers for line in self.cluster.log(broker.id).splitlines())
        return [json.loads(line) for line in lines if f'"{name}"' in line]

    def cleaned_to(self) -> int:
        return max((int(str(one["cleaned_to"])) for one in self.events(PUBLISHED)), default=0)

    def read(self) -> tuple[int, dict[bytes, bytes]]:
        """What kafka-python reads from the beginning: how many records, and the last value of each key."""
        partition = TopicPartition("t", 0)
        consumer = KafkaConsumer(bootstrap_servers=self.cluster.bootstrap, enable_auto_commit=False)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek_to_beginning(partition)
        count, found = 0, {}
        while consumer.position(partition) < end:
            for record in consumer.poll(1000).get(partition, []):
                count += 1
                found[record.key] = record.value
        consumer.close()
        return count, found


class CleanedInFolder(Cleaned):
    """Its tier is a folder."""

    def __init__(self, cluster: LocalCluster, tier: Path) -> None:
        super().__init__(cluster)
        self.tier = tier

    def orders(self) -> list[Path]:
        """Those that nobody has carried out."""
        found = sorted((self.tier / "milena-work").glob("t-0-*/*/order.json"))
        return [one.parent for one in found if not (one.parent / "manifest.json").exists()]

    def clean(self, carry_out: Callable[[], object], end: float = 0.6 * KEYS * UPDATES) -> None:
        """The first order may be of a part of what was written."""
        while (before := self.cleaned_to()) < end:
            wait_until(lambda: bool(self.orders()), "a work order", 60)
            carry_out()
            wait_until(lambda before=before: self.cleaned_to() > before, "the result to be published", 60)  # type: ignore[misc]


@contextmanager
def running(folder: Path, store: Mapping[str, str], *, brokers: int = 1) -> Iterator[LocalCluster]:
    """A cluster that issues work orders. ``store``: the settings of its tier (``tests.wire.tiers``)."""
    metadata = "rlmm.config.remote.log.metadata.topic"
    more = {f"{metadata}.replication.factor": str(brokers), f"{metadata}.min.isr": "1"}
    with LocalCluster.start(folder, brokers=brokers, overrides={**store, **ORDERS, **more}) as cluster:
        yield cluster


@contextmanager
def cleaned_in_folder(folder: Path, *, brokers: int = 1) -> Iterator[CleanedInFolder]:
    tier = folder / "tier"
    with running(folder / "cluster", settings(tier), brokers=brokers) as cluster:
        create_topic(cluster.bootstrap, "t", 1, replicas=brokers, config=COMPACTED)
        yield CleanedInFolder(cluster, tier)
