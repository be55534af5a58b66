"""The gauges of a broker, with Kafka's metric names. Their values are computed when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from milena.broker.groups.model import GroupState
from milena.node.metadata.raft_meters import register_applied
from milena.node.metrics import Objects

if TYPE_CHECKING:
    from milena.broker.controller_link.lifecycle import BrokerState
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.broker.hosting.config_store import ConfigStore
    from milena.broker.replica.fetch_sessions import FetchSessions
    from milena.broker.replica.partition import Partition
    from milena.broker.replica.partitions import PartitionSet
    from milena.broker.transactions.late import LateTransactions
    from milena.broker.waiting.purgatory import Purgatory
    from milena.node.metadata.image import MetadataImage
    from milena.node.metrics import Metrics
    from milena.runtime.context import Runtime
    from milena.storage.log.unified_log import UnifiedLog
    from milena.storage.manager.log_manager import LogManager


class Measured(Protocol):
    """What the gauges read of the broker."""

    @property
    def configs(self) -> ConfigStore: ...
    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def late_transactions(self) -> LateTransactions: ...
    @property
    def logs(self) -> LogManager: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def partitions(self) -> PartitionSet: ...
    @property
    def purgatory(self) -> Purgatory: ...
    @property
    def runtime(self) -> Runtime: ...
    @property
    def sessions(self) -> FetchSessions: ...
    @property
    def state(self) -> BrokerState: ...


def _is_reassigned(node: Measured, partition: Partition) -> bool:
    image = node.image.partition(partition.topic, partition.index)
    return image is not None and bool(image.adding or image.removing)


def _register_uncompacted(node: Measured) -> None:
    node.metrics.gauge(
        "milena_remote_uncompacted_replicas",
        lambda: sum(node.configs.is_uncompacted(partition.topic) for partition in node.partitions),
        "Replicas of tiered topics to which cleanup.policy=compact is not applied.",
    )


def _register_producers(node: Measured) -> None:
    node.metrics.gauge(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        node.late_transactions.count,
        "Partitions led here with a transaction that should have been ended.",
    )
    node.metrics.gauge(
        "kafka_server_replicamanager_produceridcount",
        lambda: sum(len(partition.log.producers) for partition in node.partitions if partition.log is not None),
        "Producers whose state is kept, over all replicas.",
    )


def register_gauges(node: Measured) -> None:
    """Register all gauges of ``node`` in its metrics."""
    _register_uncompacted(node)
    _register_producers(node)
    _register_replicas(node)
    hosted = Objects(lambda: node.partitions, _labels)
    _register_partition_gauges(node.metrics, hosted)
    _register_log_gauges(node.metrics, hosted)
    _register_group_gauges(node)
    register_applied(node.metrics, lambda: node.image, node.runtime.clock)
    if node.logs.cleaner.enabled:
        _register_cleaner_gauges(node.metrics, node.logs)
    _register_state(node)
    _register_fetch_sessions(node)
    _register_waiting(node)


def _register_replicas(node: Measured) -> None:
    """Kafka's ``kafka.server:type=ReplicaManager``."""
    gauge, partitions = node.metrics.gauge, node.partitions
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
        lambda: sum(_in_sync(partition) < _required_in_sync(partition) for partition in partitions),
        "Partitions led here with fewer replicas in sync than acks=all needs.",
    )
    gauge(
        f"{manager}_atminisrpartitioncount",
        lambda: sum(
            partition.is_leader and _in_sync(partition) == _required_in_sync(partition) for partition in partitions
        ),
        "Partitions led here with as many replicas in sync as acks=all needs.",
    )
    gauge(
        f"{manager}_reassigningpartitions",
        lambda: sum(partition.is_leader and _is_reassigned(node, partition) for partition in partitions),
        "Partitions led here to which replicas are added, or from which they are removed.",
    )


def _register_state(node: Measured) -> None:
    node.metrics.gauge(
        "kafka_server_kafkaserver_brokerstate", lambda: node.state, "0 not running, 1 starting, 2 recovery, 3 running."
    )


def _register_fetch_sessions(node: Measured) -> None:
    """Kafka's ``kafka.server:type=FetchSessionCache``."""
    gauge, cache = node.metrics.gauge, "kafka_server_fetchsessioncache"
    gauge(f"{cache}_numincrementalfetchsessions", lambda: len(node.sessions), "Incremental fetch sessions.")
    gauge(
        f"{cache}_numincrementalfetchpartitionscached",
        lambda: node.sessions.partitions,
        "Partitions in these sessions.",
    )
    node.metrics.counter_of(
        f"{cache}_incrementalfetchsessionevictionspersec_total",
        lambda: node.sessions.evictions,
        "Sessions that were evicted in favor of others.",
    )


def _register_waiting(node: Measured) -> None:
    node.metrics.gauge(
        "kafka_server_delayedoperationpurgatory_numdelayedoperations",
        lambda: len(node.purgatory),
        "Fetches and produces that wait.",
    )
    node.metrics.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        lambda: len(node.logs.offline_dirs),
        "Log directories that cannot be used.",
    )


def _register_partition_gauges(metrics: Metrics, hosted: Objects[Partition]) -> None:
    """Kafka's ``kafka.cluster:type=Partition``, for each hosted replica. All but the last are 0 for followers."""

    def gauge(name: str, read: Callable[[Partition], float], text: str) -> None:
        metrics.gauge_of_objects(f"kafka_cluster_partition_{name}", hosted, read, text)

    gauge("underreplicated", _is_under_replicated, "1 if fewer replicas are in sync than assigned.")
    gauge(
        "underminisr",
        lambda partition: _in_sync(partition) < _required_in_sync(partition),
        "1 if fewer replicas are in sync than acks=all needs.",
    )
    gauge(
        "atminisr",
        lambda partition: partition.is_leader and _in_sync(partition) == _required_in_sync(partition),
        "1 if as many replicas are in sync as acks=all needs.",
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


def _register_log_gauges(metrics: Metrics, hosted: Objects[Partition]) -> None:
    """Kafka's ``kafka.log:type=Log``, for each hosted replica whose directory is online."""

    def gauge(name: str, read: Callable[[UnifiedLog], float], text: str) -> None:
        def of_log(partition: Partition) -> float | None:
            return None if partition.log is None else read(partition.log)

        metrics.gauge_of_objects(f"kafka_log_log_{name}", hosted, of_log, text)

    gauge("size", lambda log: log.size, "Bytes of the local log.")
    gauge("logstartoffset", lambda log: log.log_start_offset, "The first offset, in the remote tier or local.")
    gauge("logendoffset", lambda log: log.log_end_offset, "The offset of the next record.")
    gauge("numlogsegments", lambda log: len(log.segments), "Local segments.")


def _register_cleaner_gauges(metrics: Metrics, logs: LogManager) -> None:
    """Kafka's ``kafka.log:type=LogCleaner`` and ``type=LogCleanerManager``, from each thread's last cleaning."""
    cleaner = logs.cleaner

    def gauge(name: str, read: Callable[[], float], text: str) -> None:
        metrics.gauge(f"kafka_log_logcleaner{name}", lambda: int(read()), text)

    gauge(
        "_max_clean_time_secs",
        lambda: max((task.seconds for task in cleaner.tasks), default=0),
        "Seconds of the last cleaning, the longest of all threads.",
    )
    gauge(
        "_max_buffer_utilization_percent",
        lambda: 100 * max((task.figures.map_utilization for task in cleaner.tasks if task.figures), default=0),
        "Used share of the buffer in the last cleaning, the largest of all threads.",
    )
    gauge(
        "_cleaner_recopy_percent",
        cleaner.recopied_percent,
        "Bytes written in the last cleanings, as a share of the bytes read.",
    )
    gauge(
        "_max_compaction_delay_secs",
        lambda: max((task.overdue_ms for task in cleaner.tasks), default=0) / 1000,
        "How long a log had waited beyond max.compaction.lag.ms when it was cleaned.",
    )
    gauge(
        "_deadthreadcount", lambda: sum(task.dead for task in cleaner.tasks), "Threads that have ended with an error."
    )
    gauge("manager_max_dirty_percent", lambda: 100 * cleaner.dirtiest_ratio, "Dirty share of the dirtiest log.")
    gauge("manager_time_since_last_run_ms", cleaner.since_last_run_ms, "Milliseconds since logs were last checked.")
    for name, read, text in (
        ("uncleanable_partitions_count", len, "Logs that cannot be cleaned, by log directory."),
        ("uncleanable_bytes", cleaner.dirty_bytes, "Bytes of these logs that are to be cleaned."),
    ):

        def values(read: Callable[[list[UnifiedLog]], float] = read) -> list[tuple[dict[str, str], float]]:
            return [
                (
                    {"logdirectory": one.path},
                    read([log for log in cleaner.cleaner.uncleanable if log.context is one.context]),
                )
                for one in logs.dirs
            ]

        metrics.gauge_of_each(f"kafka_log_logcleanermanager_{name}", values, text)


def _register_group_gauges(node: Measured) -> None:
    """Kafka's ``kafka.coordinator.group:type=GroupMetadataManager``, for the groups that this broker coordinates."""
    manager, groups = "kafka_coordinator_group_groupmetadatamanager", node.groups.groups
    node.metrics.gauge(f"{manager}_numgroups", lambda: len(groups()), "Groups coordinated here.")
    node.metrics.gauge(
        f"{manager}_numoffsets",
        lambda: sum(len(one.offsets) for one in groups()),
        "Committed offsets of the groups coordinated here.",
    )
    for state in GroupState:

        def count(state: GroupState = state) -> int:
            return sum(one.state is state for one in groups())

        node.metrics.gauge(f"{manager}_numgroups{state.value.lower()}", count, f"Groups that are {state.value}.")


def _labels(partition: Partition) -> dict[str, str]:
    return {"topic": partition.topic, "partition": str(partition.index)}


def _is_under_replicated(partition: Partition) -> bool:
    return partition.is_leader and len(partition.isr) < len(partition.replicas)


def _in_sync(partition: Partition) -> int:
    return len(partition.isr) if partition.is_leader else 0


def _required_in_sync(partition: Partition) -> int:
    """The number of in-sync replicas that acks=all needs; 0 for a follower."""
    return partition.effective_min_isr if partition.is_leader else 0
