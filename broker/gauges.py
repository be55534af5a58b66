"""What a broker shows of itself under Kafka's metric names; read when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.partition import Partition
    from broker.server import Broker


def _is_reassigned(node: Broker, partition: Partition) -> bool:
    image = node.image.partition(partition.topic, partition.index)
    return image is not None and bool(image.adding or image.removing)


def register_gauges(node: Broker) -> None:
    """Put the gauges of ``node`` into its registry."""
    gauge, partitions, purgatory = node.metrics.gauge, node.partitions, node.purgatory
    manager = "kafka_server_replicamanager"
    gauge(f"{manager}_partitioncount", lambda: len(partitions), "Replicas hosted here.")
    gauge(f"{manager}_leadercount", lambda: sum(one.is_leader for one in partitions), "Partitions led here.")
    gauge(
        f"{manager}_offlinereplicacount",
        lambda: sum(one.log is None for one in partitions),
        "Replicas whose log directory is offline.",
    )
    gauge(
        f"{manager}_underreplicatedpartitions",
        lambda: sum(one.is_leader and len(one.isr) < len(one.replicas) for one in partitions),
        "Partitions led here with fewer replicas in sync than assigned.",
    )
    gauge(
        f"{manager}_underminisrpartitioncount",
        lambda: sum(one.is_leader and len(one.isr) < one.effective_min_isr for one in partitions),
        "Partitions led here with fewer replicas in sync than acks=all needs.",
    )
    gauge(
        f"{manager}_atminisrpartitioncount",
        lambda: sum(one.is_leader and len(one.isr) == one.effective_min_isr for one in partitions),
        "Partitions led here that acks=all needs every replica in sync of.",
    )
    gauge(
        f"{manager}_reassigningpartitions",
        lambda: sum(one.is_leader and _is_reassigned(node, one) for one in partitions),
        "Partitions led here that replicas are added to or removed from.",
    )
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
