"""Managers of remote log metadata beside brokers, and the metadata that they publish."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

from milena.client.cluster import Cluster
from milena.client.producer import Producer
from milena.lab.cluster import BROKER_PORT, SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.types import NodeId
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC, metadata_partition
from milena.tiered.metadata.settings import MetadataTopicSettings
from milena.tiered.metadata.snapshot import FILE_NAME
from milena.tiered.metadata.topic_based_manager import TopicMetadataManager
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tests.simulation.steps import QUICK
from tests.unit.tiered.segments import segment

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState
SETTINGS = MetadataTopicSettings(partitions=3)
TOPIC = UUID(int=77)
PARTITIONS = [TopicIdPartition(TOPIC, "t", number) for number in range(8)]
P0 = PARTITIONS[0]


class Tier:
    """Metadata managers on machines of their own, as brokers have them."""

    def __init__(self, cluster: SimulatedCluster, client: Cluster) -> None:
        self.cluster = cluster
        self.client = client

    def manager(self, number: int = 1, settings: MetadataTopicSettings = SETTINGS) -> TopicMetadataManager:
        """A started manager, whose bootstrap addresses are all brokers."""
        runtime = self.cluster.world.machine(f"tier-{number}").start()
        for partition in PARTITIONS:
            runtime.disk.make_folders(folder(partition))
        addresses = [(host_of(broker), BROKER_PORT) for broker in self.cluster.brokers]
        manager = TopicMetadataManager(runtime, NodeId(number), settings, lambda: addresses, folder)
        manager.start()
        return manager

    async def ready(self, number: int = 1, partitions: list[TopicIdPartition] = PARTITIONS) -> TopicMetadataManager:
        manager = self.manager(number)
        manager.assign(partitions, [])
        for partition in partitions:
            assert await manager.wait_ready(partition, 60)
        return manager

    async def end(self, manager: TopicMetadataManager, number: int = 1) -> None:
        await manager.stop()
        await self.cluster.kill(f"tier-{number}")

    def files(self, number: int = 1) -> list[str]:
        """The snapshot files on a machine."""
        return sorted(path for path in self.cluster.world.machine(f"tier-{number}").storage.files if FILE_NAME in path)

    async def publish(self, *values: bytes, partition: TopicIdPartition = P0) -> None:
        """Write records that none of the managers wrote."""
        producer = Producer(self.client, request_timeout=2.0)
        number = metadata_partition(partition, SETTINGS.partitions)
        for value in values:
            await producer.enqueue(REMOTE_LOG_METADATA_TOPIC, value, partition=number)
        await producer.close()


def folder(partition: TopicIdPartition) -> str:
    return f"/data/{partition.topic}-{partition.partition}"


def beside_brokers(
    scenario: Callable[[Tier], Awaitable[None]], *, brokers: int = 3, seed: int = 1, alive: bool = True
) -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, brokers, QUICK)
        async with cluster.client() as client:
            await scenario(Tier(cluster, client))
        if alive:
            cluster.check_alive()

    simulate(run, seed=seed)


def of(partition: TopicIdPartition, number: int, start: int = 0) -> RemoteLogSegmentMetadata:
    return segment(number, start, start + 9, {0: start}, partition=partition)


def known(manager: TopicMetadataManager, partition: TopicIdPartition = P0) -> list[tuple[int, str]]:
    return [(one.id.int, one.state.name) for one in manager.cache(partition).segments()]
