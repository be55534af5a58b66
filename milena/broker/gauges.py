"""What a broker shows of itself under Kafka's metric names; read when somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from milena.broker.controller_link.lifecycle import BrokerState
    from milena.broker.replica.fetch_sessions import FetchSessions
    from milena.broker.replica.partition import Partition
    from milena.broker.replica.partitions import PartitionSet
    from milena.broker.waiting.purgatory import Purgatory
    from milena.node.metadata.image import MetadataImage
    from milena.node.metrics import Metrics
    from milena.storage.manager.log_manager import LogManager


class Measured(Protocol):
    """What the gauges show."""

    @property
    def image(self) -> MetadataImage: ...
    @property
    def logs(self) -> LogManager: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def partitions(self) -> PartitionSet: ...
    @property
    def purgatory(self) -> Purgatory: ...
    @property
    def sessions(self) -> FetchSessions: ...
    @property
    def state(self) -> BrokerState: ...


def _is_reassigned(node: Measured, partition: Partition) -> bool:
    image = node.image.partition(partition.topic, partition.index)
    return image is not None and bool(image.adding or image.removing)


def register_gauges(node: Measured) -> None:
    """Put the gauges of ``node`` into its registry."""
    gauge, partitions, purgatory = node.metrics.gauge, node.partitions, node.purgatory
    manager = "kafka_server_replicamanager"
    gauge(f"{manager}_partitioncount", lambda: len(partitions), "Replicas hosted here.")
    gauge(
        f"{manager}_leadercount", lambda: sum(partition.is_leader for partition in partitions), "Partitions led here."
    )
    gauge(
        f"{manager}_offlinereplicacount",
        lambda: sum(partition.log is None for partition in partitions),
        "Replicas whose log directory is offline.",
    )
    gauge(
        f"{manager}_underreplicatedpartitions",
        lambda: sum(_is_under_replicated(partition) for partition in partitions),
        "Partitions led here with fewer replicas in sync than assigned.",
    )
    gauge(
        f"{manager}_underminisrpartitioncount",
        lambda: sum(_in_sync(partition) < _needed(partition) for partition in partitions),
        "Partitions led here with fewer replicas in sync than acks=all needs.",
    )
    gauge(
        f"{manager}_atminisrpartitioncount",
        lambda: sum(partition.is_leader and _in_sync(partition) == _needed(partition) for partition in partitions),
        "Partitions led here that acks=all needs every replica in sync of.",
    )
    gauge(
        f"{manager}_reassigningpartitions",
        lambda: sum(partition.is_leader and _is_reassigned(node, partition) for partition in partitions),
        "Partitions led here that replicas are added to or removed from.",
    )
    _register_partition_gauges(node)
    gauge(
        "kafka_server_kafkaserver_brokerstate", lambda: node.state, "0 not running, 1 starting, 2 recovery, 3 running."
    )
    cache = "kafka_server_fetchsessioncache"
    gauge(f"{cache}_numincrementalfetchsessions", lambda: len(node.sessions), "Incremental fetch sessions.")
    gauge(
        f"{cache}_numincrementalfetchpartitionscached",
        lambda: node.sessions.partitions,
        "Partitions in these sessions.",
    )
    gauge(
        "kafka_server_delayedoperationpurgatory_numdelayedoperations",
        lambda: len(purgatory),
        "Fetches and produces that wait.",
    )
    gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        lambda: len(node.logs.offline_dirs),
        "Log directories that cannot be used.",
    )


def _register_partition_gauges(node: Measured) -> None:
    """Kafka's ``kafka.cluster:type=Partition``, of each replica here; but for the last a follower shows 0."""

    def gauge(name: str, read: Callable[[Partition], float], text: str) -> None:
        def each() -> list[tuple[dict[str, str], float]]:
            return [
                ({"topic": partition.topic, "partition": str(partition.index)}, read(partition))
                for partition in node.partitions
            ]

        node.metrics.gauge_of_each(f"kafka_cluster_partition_{name}", each, text)

    gauge("underreplicated", _is_under_replicated, "1 where fewer replicas are in sync than assigned.")
    gauge(
        "underminisr",
        lambda partition: _in_sync(partition) < _needed(partition),
        "1 where fewer are in sync than acks=all needs.",
    )
    gauge(
        "atminisr",
        lambda partition: partition.is_leader and _in_sync(partition) == _needed(partition),
        "1 where acks=all needs every replica that is in sync.",
    )
    gauge("insyncreplicascount", _in_sync, "Replicas in sync.")
    gauge(
        "replicascount", lambda partition: len(partition.replicas) if partition.is_leader else 0, "Replicas assigned."
    )
    gauge(
        "laststableoffsetlag",
        lambda partition: (
            0 if partition.log is None else partition.log.high_watermark - partition.log.last_stable_offset
        ),
        "Records between the last stable offset and the high watermark.",
    )


def _is_under_replicated(partition: Partition) -> bool:
    return partition.is_leader and len(partition.isr) < len(partition.replicas)


def _in_sync(partition: Partition) -> int:
    return len(partition.isr) if partition.is_leader else 0


def _needed(partition: Partition) -> int:
    """Replicas in sync that acks=all needs here."""
    return partition.effective_min_isr if partition.is_leader else 0
