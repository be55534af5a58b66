"""The topic with remote log segment metadata, on real brokers of which one is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from milena.protocol.types import NodeId
from milena.runtime.process import real_runtime
from milena.testing.local_cluster import LocalCluster
from milena.tiered.metadata.metadata_manager import RemoteLogMetadataManager
from milena.tiered.metadata.settings import MetadataTopicSettings
from milena.tiered.metadata.topic_based_manager import TopicMetadataManager
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState, TopicIdPartition
from tests.unit.tiered.segments import segment, update

PARTITIONS = [TopicIdPartition(UUID(int=77), "t", number) for number in range(4)]


@asynccontextmanager
async def manager(cluster: LocalCluster, folder: Path) -> AsyncIterator[TopicMetadataManager]:
    """A metadata manager that is ready for all partitions, and stores its snapshots in ``folder``."""
    addresses = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in cluster.bootstrap.split(","))]

    def place(partition: TopicIdPartition) -> str:
        return str(folder / f"{partition.topic}-{partition.partition}")

    runtime = real_runtime()
    for partition in PARTITIONS:
        runtime.disk.make_folders(place(partition))
    settings = MetadataTopicSettings(partitions=5)
    made = TopicMetadataManager(runtime, NodeId(7), settings, lambda: addresses, place)
    made.start()
    made.assign(PARTITIONS, [])
    try:
        for partition in PARTITIONS:
            assert await made.wait_ready(partition, 20)
        yield made
    finally:
        await made.stop()


async def copy(to: TopicMetadataManager, numbers: range) -> None:
    for number in numbers:
        one = segment(number, 10 * number, 10 * number + 9, {0: 10 * number}, partition=PARTITIONS[number % 4])
        await to.add(one)
        await to.update(update(one, RemoteLogSegmentState.COPY_SEGMENT_FINISHED))


def known(of: RemoteLogMetadataManager) -> list[tuple[int, str]]:
    every = [one for partition in PARTITIONS for one in of.cache(partition).segments()]
    return sorted((one.id.int, one.state.name) for one in every)


@pytest.mark.timeout(60)
def test_published_metadata_survive_a_killed_broker_and_are_equal_in_snapshots_and_topic(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        expected = [(number, "COPY_SEGMENT_FINISHED") for number in range(40)]
        async with manager(cluster, tmp_path / "first") as first:
            await copy(first, range(20))
            cluster.kill(cluster.brokers[0].id)
            await copy(first, range(20, 40))
            assert known(first) == expected
        async with manager(cluster, tmp_path / "first") as again:
            assert known(again) == expected
        async with manager(cluster, tmp_path / "second") as other:
            assert known(other) == expected

    with LocalCluster.start(tmp_path / "cluster", brokers=3) as cluster:
        asyncio.run(scenario(cluster))
