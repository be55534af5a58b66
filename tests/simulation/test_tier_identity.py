"""Brokers copy only to the tier of their cluster: not to an empty mount point, not to that of another cluster."""

from __future__ import annotations

import asyncio

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of
from milena.lab.world.disk import Storage
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.tiered.store.tier_identity import IDENTITY, encode
from tests.simulation.steps import until, values, write
from tests.simulation.tiered_replicas import REPLICATED, all_in_sync, leader_of, readable
from tests.simulation.tiered_topics import ROOT, TIER, TIERED, bases, in_tier, known_segments, log_of, with_tier

PATH = f"{TIER}/{IDENTITY}"
COPY_FAILED = "remote log: copy failed"


async def copied(cluster: SimulatedCluster, client: Cluster) -> None:
    """Write 22 records, and wait until records 0 to 19 are only in the tier."""
    await write(client, 22)
    for broker in cluster.brokers:
        await until(lambda broker=broker: bases(cluster, broker) == [20])  # type: ignore[misc]


def test_a_wiped_broker_creates_no_tier_in_an_empty_mount_point() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await copied(cluster, client)
        tier = cluster.world.tier
        files, folders = dict(tier.files), dict(tier.folders)
        wiped = next(number for number in cluster.brokers if number != leader_of(cluster))
        await cluster.kill(host_of(wiped))
        cluster.wipe(host_of(wiped))
        tier.wipe()
        tier.folders[TIER] = None
        await cluster.start_broker(wiped)
        await write(client, 12, first=22)
        await asyncio.sleep(60)
        assert not tier.files and ROOT not in tier.folders
        leader = leader_of(cluster)
        assert (log_of(cluster, leader).log_start_offset, bases(cluster, leader)) == (0, [20, 24, 28, 32])
        tier.files.update(files)
        tier.folders.update(folders)
        await all_in_sync(cluster)
        for number in cluster.brokers:
            await until(lambda number=number: bases(cluster, number) == [32])  # type: ignore[misc]
            await until(lambda number=number: list(readable(cluster, number).values()) == list(range(34)))  # type: ignore[misc]

    with_tier(scenario, brokers=3, configs={"min.insync.replicas": "2"}, **REPLICATED)


@pytest.mark.parametrize("restarts", [False, True])
def test_no_tier_is_created_where_there_was_one_whose_segments_have_all_expired(restarts: bool) -> None:
    """The metadata then has no segment, as in a new cluster."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"retention.ms": "1"})
        await until(lambda: not known_segments(cluster).segments() and not in_tier(cluster))
        await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"retention.ms": "-1"})
        if restarts:
            await cluster.kill(host_of(1))
        tier = cluster.world.tier
        files, folders = dict(tier.files), dict(tier.folders)
        tier.wipe()
        tier.folders[TIER] = None
        if restarts:
            await cluster.start_broker(1)
        first = log_of(cluster).log_end_offset
        await write(client, 12, first=22)
        await asyncio.sleep(60)
        assert not tier.files and ROOT not in tier.folders
        assert len(bases(cluster)) > 3
        tier.files.update(files)
        tier.folders.update(folders)
        await until(lambda: len(bases(cluster)) == 1)
        assert [number for offset, number in readable(cluster, 1).items() if offset >= first] == list(range(22, 34))

    with_tier(scenario)


def test_a_broker_that_copied_nothing_creates_no_tier_where_others_had_one() -> None:
    """The metadata of its own partitions has no segment; that of others has."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        own = admin.NewTopic("own", assignments={0: [2]}, configs=TIERED)
        assert await admin.create_topics(client, [own]) == {"own": None}
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        empty = Storage(cluster.world.random)
        empty.folders[TIER] = None
        for number in cluster.brokers:
            cluster.world.machine(host_of(number)).mount_tier(empty)
        await write(client, 22, "own")
        await asyncio.sleep(60)
        assert not empty.files and ROOT not in empty.folders
        for number in cluster.brokers:
            cluster.world.machine(host_of(number)).mount_tier(None)
        found = cluster.brokers[2].partitions.find("own", 0)
        assert found is not None
        await until(lambda: len(found.online_log.segments) == 1)
        assert await values(client, 22, "own") == list(range(22))

    with_tier(scenario, brokers=2, replicas=1)


def test_nothing_is_copied_to_the_tier_of_another_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await copied(cluster, client)
        file = cluster.world.tier.files[PATH]
        own = bytes(file.data)
        file.data[:] = encode("another")
        await write(client, 12, first=22)
        await asyncio.sleep(30)
        assert "is the tier of cluster another" in capsys.readouterr().err
        assert (in_tier(cluster), bases(cluster)) == ([0, 4, 8, 12, 16], [20, 24, 28, 32])
        file.data[:] = own
        await until(lambda: bases(cluster) == [32])

    with_tier(scenario)


def test_a_tier_without_a_cluster_id_is_adopted() -> None:
    """Kafka and older versions of Milena leave such a tier."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await copied(cluster, client)
        own = bytes(cluster.world.tier.files[PATH].data)
        await cluster.kill(host_of(1))
        del cluster.world.tier.files[PATH]
        await cluster.start_broker(1)
        await until(lambda: PATH in cluster.world.tier.files)
        assert bytes(cluster.world.tier.files[PATH].data) == own
        await write(client, 12, first=22)
        await until(lambda: bases(cluster) == [32])

    with_tier(scenario)
