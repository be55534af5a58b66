"""Common helpers of the scenarios with a tier: a cluster with a tier, a tiered topic, the contents of log and tier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from milena.broker.replica.partition import Partition
from milena.client import admin
from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.records.records import iter_records, offset_of
from milena.storage.files.names import LOG
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.metadata.serialization import MetadataEvent, deserialize
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState
from milena.tiered.store.tier_config import LOCAL
from milena.tiered.store.tier_identity import IDENTITY
from milena.tiered.store.tier_names import COPYING
from milena.tiered.work.roles import ReplicaRole
from tests.simulation.steps import QUICK, batches_in, storage_of, until

TIER = "/tier"
ROOT = f"{TIER}/kafka-tiered-storage"
COPIES = f"{TIER}/{COPYING}"
"""The folder of segments whose copy is not complete."""
INTERVAL_MS = 500
WITH_TIER: dict[str, object] = {
    **QUICK,
    "remote_log_storage_system_enable": True,
    "remote_log_storage_manager_class_name": LOCAL,
    "rsm_config_dir": TIER,
    "rlmm_config_remote_log_metadata_topic_num_partitions": 3,
    "rlmm_config_remote_log_metadata_topic_replication_factor": 1,
    "remote_log_manager_task_interval_ms": INTERVAL_MS,
    "log_retention_check_interval_ms": INTERVAL_MS,
}
TIERED: dict[str, str] = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "700",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}
"""Four records of ``steps.write`` fit into a segment."""


def with_tier(
    scenario: Callable[[SimulatedCluster, Cluster], Awaitable[None]],
    *,
    seed: int = 1,
    brokers: int = 1,
    replicas: int | None = None,
    configs: Mapping[str, str] | None = None,
    **overrides: object,
) -> None:
    """Run ``scenario`` with a tiered topic ``t`` of one partition, on all brokers or the first ``replicas``. Broker 1
    leads."""

    async def run(world: World) -> None:
        cluster = await start_cluster(world, brokers, WITH_TIER | overrides)
        async with cluster.client() as client:
            hosts = range(1, (replicas or brokers) + 1)
            topic = admin.NewTopic("t", assignments={0: hosts}, configs=TIERED | dict(configs or {}))
            assert await admin.create_topics(client, [topic]) == {"t": None}
            await until(lambda: all(_has_role(cluster, number) for number in hosts), 30)
            await scenario(cluster, client)
        cluster.check_alive()

    simulate(run, seed=seed)


def with_unclean_elections(scenario: Callable[[SimulatedCluster, Cluster], Awaitable[None]], seed: int) -> None:
    """``with_tier`` on brokers 1 and 2 of three, with unclean elections; the metadata topic is on all three."""
    with_tier(
        scenario,
        seed=seed,
        brokers=3,
        replicas=2,
        configs={"unclean.leader.election.enable": "true"},
        rlmm_config_remote_log_metadata_topic_replication_factor=3,
        rlmm_config_remote_log_metadata_topic_min_isr=1,
    )


def _has_role(cluster: SimulatedCluster, broker: int) -> bool:
    tier, found = cluster.brokers[broker].tier, cluster.brokers[broker].partitions.find("t", 0)
    return tier is not None and found is not None and tier.role_of(found) is not None


def replica(cluster: SimulatedCluster, broker: int = 1) -> Partition:
    found = cluster.brokers[broker].partitions.find("t", 0)
    assert found is not None
    return found


def log_of(cluster: SimulatedCluster, broker: int = 1) -> UnifiedLog:
    return replica(cluster, broker).online_log


def role_of(cluster: SimulatedCluster, broker: int = 1) -> ReplicaRole:
    tier = cluster.brokers[broker].tier
    assert tier is not None
    role = tier.role_of(replica(cluster, broker))
    assert role is not None
    return role


def known_segments(cluster: SimulatedCluster, broker: int = 1) -> RemoteLogMetadataCache:
    """The segments that a broker knows in the tier; none before its remote log metadata is ready."""
    manager, partition = cluster.brokers[broker].tier, role_of(cluster, broker).partition
    assert manager is not None
    metadata = manager.tier.metadata
    return metadata.cache(partition) if metadata.is_ready(partition) else RemoteLogMetadataCache()


def finished(cluster: SimulatedCluster, broker: int = 1) -> list[tuple[int, int]]:
    """(first offset, last offset) of each finished segment that a broker knows, in order."""
    return [
        (one.start_offset, one.end_offset)
        for one in known_segments(cluster, broker).segments()
        if one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    ]


def published(cluster: SimulatedCluster) -> list[MetadataEvent]:
    """All events of the metadata topic, whose partitions have one replica each, from the disks of all brokers."""
    found: list[MetadataEvent | None] = []
    for broker in cluster.brokers:
        for path, inode in sorted(storage_of(cluster, broker).files.items()):
            if f"/{REMOTE_LOG_METADATA_TOPIC}-" in path and path.endswith(LOG):
                for batch in batches_in(bytes(inode.data)):
                    found += [deserialize(record.value, offset_of(batch, record)) for record in iter_records(batch)]
    return [event for event in found if event is not None]


def stored(cluster: SimulatedCluster) -> list[str]:
    """The paths of all files of the tier except ``milena-tier.properties``."""
    return [path for path in cluster.world.tier.files if path != f"{TIER}/{IDENTITY}"]


def in_tier(cluster: SimulatedCluster) -> list[int]:
    """The start offsets of the segments whose logs are in the tier, in order."""
    names = [path.rpartition("/")[2] for path in cluster.world.tier.files if path.startswith(ROOT)]
    return sorted(int(name[:20]) for name in names if name.endswith(".log"))


def objects_in_tier(cluster: SimulatedCluster) -> Counter[str]:
    """The number of objects of each kind in the tier."""
    return Counter(path.rpartition(".")[2] for path in cluster.world.tier.files if path.startswith(ROOT))


def bases(cluster: SimulatedCluster, broker: int = 1) -> list[int]:
    """The base offsets of the local segments."""
    return [segment.base_offset for segment in log_of(cluster, broker).segments]
