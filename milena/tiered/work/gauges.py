"""Gauges of the partitions that a broker leads in the tier (docs/kafka-semantics.md: Metrics); computed when they are
read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milena.node.metrics import Metrics
from milena.storage.log import tiering
from milena.storage.log.segment import Segment
from milena.tiered.shared.pool import Pool
from milena.tiered.work.roles import ReplicaRole

_TOPIC: Final = "kafka_server_brokertopicmetrics"
_MANAGER: Final = "kafka_log_remote_remotelogmanager"


def waiting_segments(role: ReplicaRole) -> list[Segment]:
    """Return the closed segments that are not in the tier; empty if copying is disabled."""
    log = role.log
    return tiering.only_local(log)[:-1] if log is not None and log.remote_copy_enabled else []


_SHOWN: Final[tuple[tuple[str, str, Callable[[ReplicaRole], float]], ...]] = (
    (
        "remotecopylagbytes",
        "Bytes of closed segments that are not in the tier yet.",
        lambda role: sum(segment.size for segment in waiting_segments(role)),
    ),
    (
        "remotecopylagsegments",
        "Closed segments that are not in the tier yet.",
        lambda role: len(waiting_segments(role)),
    ),
    ("remotedeletelagbytes", "Bytes in the tier that are due to be deleted.", lambda role: role.figures.delete_bytes),
    (
        "remotedeletelagsegments",
        "Segments in the tier that are due to be deleted.",
        lambda role: role.figures.delete_segments,
    ),
    (
        "remotecleaneruncleanablepartitions",
        "Partitions with a damaged segment, which are not cleaned in the tier.",
        lambda role: role.uncleanable is not None,
    ),
    ("remotelogmetadatacount", "Segments that the metadata lists.", lambda role: role.figures.remote_segments),
    ("remotelogsizebytes", "Bytes in the tier.", lambda role: role.figures.remote_size),
    (
        "remotelogcleanlostranges",
        "Ranges of offsets in the tier that were cleaned because of records that an unclean election has truncated.",
        lambda role: role.figures.lost_values,
    ),
    (
        "remotelogsizecomputationtime",
        "Duration of the last search for expired segments, in milliseconds.",
        lambda role: role.figures.computation_ms,
    ),
)
"""Gauges per topic, with name, help text and value of one partition: the sum over the partitions led here."""


class TierGauges:
    """Registers the gauges of led partitions, and removes them."""

    def __init__(self, metrics: Metrics, pools: tuple[Pool, ...]) -> None:
        self._metrics = metrics
        self._leading: dict[str, list[ReplicaRole]] = {}
        metrics.gauge(
            f"{_MANAGER}_remotelogmanagertasksavgidlepercent",
            lambda: sum(pool.idle_share for pool in pools) / len(pools),
            "Share of the tier's task threads that are idle, 0 to 1.",
        )

    def show(self, role: ReplicaRole) -> None:
        if not role.leads:
            return
        topic = role.replica.topic
        roles = self._leading.setdefault(topic, [])
        roles.append(role)
        if len(roles) == 1:
            for name, text, read in _SHOWN:
                self._metrics.gauge(f"{_TOPIC}_{name}", _sum_over(roles, read), text, topic=topic)
        labels = {"topic": topic, "partition": str(role.replica.index)}
        self._metrics.gauge(
            f"{_MANAGER}_remotedirtyinpercent",
            lambda: 100 * role.figures.dirty_ratio,
            "Bytes of a compacted partition in the tier that are dirty, in percent.",
            **labels,
        )
        self._metrics.gauge(
            f"{_MANAGER}_retentionsizeinpercent",
            lambda: _share(role, role.figures.retained_size, local=False),
            "Size of the log, including the tier, in percent of retention.bytes.",
            **labels,
        )
        self._metrics.gauge(
            f"{_MANAGER}_localretentionsizeinpercent",
            lambda: _share(role, 0 if role.log is None else role.log.size, local=True),
            "Local size of the log in percent of local.retention.bytes.",
            **labels,
        )

    def hide(self, role: ReplicaRole) -> None:
        topic = role.replica.topic
        roles = self._leading.get(topic, [])
        if role not in roles:
            return
        roles.remove(role)
        labels = {"topic": topic, "partition": str(role.replica.index)}
        for name in ("remotedirtyinpercent", "retentionsizeinpercent", "localretentionsizeinpercent"):
            self._metrics.remove(f"{_MANAGER}_{name}", **labels)
        if not roles:
            del self._leading[topic]
            for name, _, _ in _SHOWN:
                self._metrics.remove(f"{_TOPIC}_{name}", topic=topic)


def _sum_over(roles: list[ReplicaRole], read: Callable[[ReplicaRole], float]) -> Callable[[], float]:
    return lambda: sum(read(role) for role in roles)


def _share(role: ReplicaRole, size: int, *, local: bool) -> float:
    log = role.log
    if log is None:
        return 0.0
    limit = log.config.local_bytes if local else log.config.retention_bytes
    return size * 100 / limit if limit > 0 else 0.0
