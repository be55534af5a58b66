"""Disks that fail while a log is renamed or moved, at start-up or at shutdown: the broker keeps running."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.protocol.api_keys import ApiKey
from tests.simulation.steps import (
    DIRS,
    METADATA_DIR,
    OF_BROKERS,
    QUICK,
    create,
    directory_of,
    storage_of,
    until,
    values,
    write,
)
from tests.simulation.tiered_topics import TIERED, WITH_TIER, in_tier

RECORDS = 10


def on_a_broker(scenario: Callable[[SimulatedCluster, Cluster], Awaitable[None]], **overrides: object) -> None:
    """Run ``scenario`` with one broker, and expect that ``runtime.contained`` has handled no unexpected error."""

    async def run(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK | overrides, of_brokers=OF_BROKERS)
        async with cluster.client() as client:
            try:
                await scenario(cluster, client)
            finally:
                cluster.check_alive()
        assert cluster.brokers[1].runtime.contained.count == 0

    simulate(run, seed=1)


async def two_topics(cluster: SimulatedCluster, client: Cluster) -> str:
    """Create ``t`` in one directory and ``other`` in the other one; return the directory of ``t``."""
    await create(client)
    await write(client, RECORDS)
    await create(client, "other")
    await write(client, RECORDS, "other")
    assert directory_of(cluster, 1) != directory_of(cluster, 1, "other")
    return directory_of(cluster, 1)


async def other_serves(client: Cluster, first: int = RECORDS) -> None:
    await write(client, 1, "other", first=first)
    assert await values(client, first + 1, "other") == list(range(first + 1))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_topic_is_deleted_and_created_again_though_its_disk_cannot_rename(number: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        broken = await two_topics(cluster, client)
        storage_of(cluster, 1).fail(f"{broken}/t-0", number, operation="rename")
        assert await admin.delete_topics(client, ["t"]) == {"t": None}
        await until(lambda: [one.path for one in cluster.brokers[1].logs.offline_dirs] == [broken])
        await create(client)
        assert directory_of(cluster, 1) != broken
        await write(client, RECORDS)
        assert await values(client, RECORDS) == list(range(RECORDS))
        await other_serves(client)
        assert cluster.brokers[1].runtime.contained.count == 0
        # After a restart the log that could not be deleted belongs to no topic.
        storage_of(cluster, 1).heal()
        await cluster.kill(host_of(1))
        await cluster.start_broker(1)
        assert await values(client, RECORDS) == list(range(RECORDS))
        assert [name for name in storage_of(cluster, 1).folders if name.startswith(f"{broken}/t-0.")]

    on_a_broker(scenario)


def test_a_broker_starts_though_a_stray_log_cannot_be_renamed() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        broken = await two_topics(cluster, client)
        await cluster.stop_broker(1)
        storage = storage_of(cluster, 1)
        folder = f"{broken}/gone-0"
        storage.folders[folder] = None
        storage.fail(folder, errno.ENOSPC, operation="rename")
        await cluster.start_broker(1)
        assert [one.path for one in cluster.brokers[1].logs.offline_dirs] == [broken]
        await other_serves(client)

    on_a_broker(scenario)


def test_a_replica_moves_though_its_former_folder_cannot_be_deleted() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        broken = await two_topics(cluster, client)
        target = directory_of(cluster, 1, "other")
        storage_of(cluster, 1).fail(f"{broken}/t-0", errno.ENOSPC, operation="rename")
        topics = [{"name": "t", "partitions": [0]}]
        await client.to(host_of(1), 9092).request(
            ApiKey.ALTER_REPLICA_LOG_DIRS, dirs=[{"path": target, "topics": topics}]
        )
        await until(lambda: bool(cluster.brokers[1].logs.offline_dirs))
        assert directory_of(cluster, 1) == target
        await write(client, RECORDS, first=RECORDS)
        assert await values(client, 2 * RECORDS) == list(range(2 * RECORDS))

    on_a_broker(scenario)


def test_the_logs_are_closed_cleanly_though_the_disk_of_the_metadata_log_has_failed() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await two_topics(cluster, client)
        storage_of(cluster, 1).fail(METADATA_DIR, errno.ENOSPC, operation="rename")
        await cluster.stop_broker(1)
        assert all(f"{path}/.kafka_cleanshutdown" in storage_of(cluster, 1).files for path in DIRS)

    on_a_broker(scenario)


def test_a_broker_starts_though_the_cache_of_remote_indexes_cannot_be_written() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, configs=TIERED)
        await write(client, RECORDS)
        await until(lambda: in_tier(cluster) == [0, 4])
        await cluster.stop_broker(1)
        storage = storage_of(cluster, 1)
        storage.fail(f"{DIRS[0]}/remote-log-index-cache", errno.ENOSPC)
        await cluster.start_broker(1)
        await write(client, RECORDS, first=RECORDS)
        storage.heal()
        assert await values(client, 2 * RECORDS) == list(range(2 * RECORDS))

    on_a_broker(scenario, **WITH_TIER)


def test_remote_storage_can_be_disabled_for_a_log_whose_disk_has_just_failed() -> None:
    """The other changes of the same metadata publication are carried out too."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, configs=TIERED)
        await write(client, RECORDS)
        log = cluster.brokers[1].logs.get("t", 0)
        await until(lambda: log is not None and log.local_log_start_offset == 8)
        broken = directory_of(cluster, 1)
        storage_of(cluster, 1).fail(f"{broken}/t-0", errno.ENOSPC, operation="append")
        changes = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        await admin.alter_configs(client, TOPIC_RESOURCE, "t", changes)
        await until(lambda: bool(cluster.brokers[1].logs.offline_dirs))
        await asyncio.sleep(1)

    on_a_broker(scenario, **WITH_TIER)
