"""The topics of a run, and the cluster's configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from milena.protocol.types import TopicPartition

REPLICAS: Final = 3
MIN_ISR: Final = 2
SESSION: Final = 3.0
LAG: Final = 5.0
"""Seconds, as the configuration below says."""
CLUSTER: Final[Mapping[str, str]] = {
    "broker.session.timeout.ms": f"{SESSION * 1000:.0f}",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": f"{LAG * 1000:.0f}",
    "min.insync.replicas": str(MIN_ISR),
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": str(REPLICAS),
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": str(REPLICAS),
    "transaction.state.log.min.isr": str(MIN_ISR),
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "offsets.retention.check.interval.ms": "86400000",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "remote.log.manager.task.interval.ms": "1000",
}
"""Of all nodes, in all places. Retention of offsets is not checked during a run: the check also deletes empty groups
without offsets, and such a group begins again with generation 1."""
COMPACTED_TIER: Final[Mapping[str, str]] = {"remote.log.compaction.enable": "true"}
"""Milena's own, without which a compacted topic cannot be tiered."""
TOMBSTONES_STAY: Final = 60.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One kind of topic. ``keyed``: written with keys and read from start to end. ``control``: without promises, so
    that the checker is seen to find what is lost. ``keys``: how many keys. ``also_weak``: it is written to with acks=1,
    too."""

    name: str
    partitions: int
    config: Mapping[str, str]
    keyed: bool = False
    acks: int = -1
    control: bool = False
    keys: int = 30
    also_weak: bool = False

    @property
    def min_isr(self) -> int:
        return int(self.config.get("min.insync.replicas", "1"))

    @property
    def tombstones_stay(self) -> float:
        """``delete.retention.ms`` in seconds."""
        return int(self.config["delete.retention.ms"]) / 1000

    @property
    def is_tiered(self) -> bool:
        return self.config.get("remote.storage.enable") == "true"

    @property
    def places(self) -> list[TopicPartition]:
        return [(self.name, number) for number in range(self.partitions)]


_SAFE: Final = {"min.insync.replicas": str(MIN_ISR), "retention.ms": "-1", "unclean.leader.election.enable": "false"}
_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "5000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": f"{TOMBSTONES_STAY * 1000:.0f}",
    "file.delete.delay.ms": "1000",
}
_TIERED: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "segment.ms": "3000",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "1000",
}
PLAIN: Final = Topic("plain", 3, _SAFE)
WEAK: Final = Topic("weak", 3, _SAFE, acks=1, control=True)
UNCLEAN: Final = Topic(
    "loose", 2, _SAFE | {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}, control=True
)
SOURCE: Final = Topic("transactions-in", 2, _SAFE)
TARGET: Final = Topic("transactions-out", 2, _SAFE)
"""All records of these two are written in transactions; chains read the first one and write to the second one."""
TOPICS: Final = {
    topic.name: topic
    for topic in (
        PLAIN,
        Topic("compacted", 2, _SAFE | _COMPACTED, keyed=True),
        Topic("tiered", 2, _SAFE | _TIERED),
        Topic("compacted-tiered", 2, _SAFE | _COMPACTED | _TIERED, keyed=True),
        WEAK,
        UNCLEAN,
    )
}


def chosen(names: Collection[str], *, unsafe: bool) -> list[Topic]:
    """The topics of a run in a place that can have ``names``. The one with unclean elections is for unsafe runs."""
    return [topic for topic in TOPICS.values() if topic.name in names and (unsafe or topic is not UNCLEAN)]
