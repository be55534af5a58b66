"""Tiered topics with crashes, power losses, moves and elections: each committed record is once in local log or tier."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of
from milena.storage.files.names import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from tests.simulation.steps import (
    DIRS,
    OF_BROKERS,
    broker_image,
    directory_of,
    partition_image,
    seeds,
    storage_of,
    until,
    write,
)
from tests.simulation.tiered_replicas import REPLICATED, all_in_sync, leader_of, readable
from tests.simulation.tiered_topics import (
    TIER,
    bases,
    in_tier,
    log_of,
    replica,
    with_tier,
    with_unclean_elections,
)

MOVABLE: dict[str, Any] = dict(OF_BROKERS)


@pytest.mark.parametrize("seed", seeds(4))
def test_a_power_loss_loses_no_record_of_the_local_log_or_the_tier(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        before = readable(cluster, 1)
        assert list(before) == list(range(22))
        victim = leader_of(cluster)
        await cluster.lose_power(host_of(victim))
        await until(lambda: leader_of(cluster) not in (-1, victim))
        await cluster.start_broker(victim)
        await all_in_sync(cluster)
        await until(lambda: bases(cluster, victim) == [20])
        for number in cluster.brokers:
            await until(lambda number=number: readable(cluster, number) == before)  # type: ignore[misc]
            log = log_of(cluster, number)
            assert (log.log_start_offset, log.local_log_start_offset) == (0, 20)

    with_tier(scenario, seed=seed, brokers=3, configs={"min.insync.replicas": "2"}, **REPLICATED)


@pytest.mark.parametrize("lost", [(), (HIGH_WATERMARKS, RECOVERY_POINTS), (LOG_STARTS,)])
def test_a_broker_that_lost_checkpoints_recovers_its_log_and_its_remote_segments(lost: tuple[str, ...]) -> None:
    """Follows Kafka's FetchFromLeaderWithCorruptedCheckpointTest."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        await asyncio.sleep(90)  # the checkpoints are on the disk
        await cluster.kill(host_of(1))
        for name in lost:
            del storage_of(cluster, 1).files[f"/data/{name}"]
        await cluster.start_broker(1)
        await until(lambda: not broker_image(cluster, 1).fenced and replica(cluster).is_leader)
        log = log_of(cluster)
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 20, 22)
        await until(lambda: list(readable(cluster, 1).values()) == list(range(22)))

    with_tier(scenario)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_log_that_moves_to_another_directory_keeps_its_remote_segments(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        target = next(folder for folder in DIRS if folder != directory_of(cluster, 1))
        broker = cluster.brokers[1]
        directory = next(one for one in broker.logs.dirs if one.path == target)
        broker.log_mover.move(replica(cluster), directory)
        await until(lambda: directory_of(cluster, 1) == target)
        log = log_of(cluster)
        assert (log.log_start_offset, log.local_log_start_offset, log.highest_offset_in_remote_storage) == (0, 20, 19)
        await write(client, 8, first=22)
        await until(lambda: bases(cluster) == [28])
        assert in_tier(cluster) == list(range(0, 28, 4))
        assert list(readable(cluster, 1).values()) == list(range(30))

    with_tier(scenario, seed=seed, **MOVABLE)


@pytest.mark.parametrize("seed", seeds(6))
def test_despite_failures_of_brokers_and_tier_every_committed_record_is_readable(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        random, written = cluster.world.random, 0
        for _ in range(8):
            await write(client, 10, first=written)
            written += 10
            victim = random.below(3) + 1
            match random.below(4):
                case 0:
                    await cluster.kill(host_of(victim))
                    await cluster.start_broker(victim)
                case 1:
                    await cluster.stop_broker(victim)
                    await cluster.start_broker(victim)
                case 2:
                    cluster.world.tier.fail(TIER, random.choice((errno.EIO, errno.ENOSPC, errno.EROFS)))
                case _:
                    await cluster.lose_power(host_of(victim))
                    await until(lambda victim=victim: leader_of(cluster) not in (-1, victim))  # type: ignore[misc]
                    await cluster.start_broker(victim)
            await asyncio.sleep(random.uniform(0, 2))
            if random.below(2):
                cluster.world.tier.heal()
            await all_in_sync(cluster)
        cluster.world.tier.heal()
        await all_in_sync(cluster)
        for number in cluster.brokers:
            await until(lambda number=number: len(bases(cluster, number)) == 1)  # type: ignore[misc]
            assert list(readable(cluster, number).values()) == list(range(written))

    with_tier(scenario, seed=seed, brokers=3, configs={"min.insync.replicas": "2"}, **REPLICATED)


@pytest.mark.parametrize("seed", seeds(3))
def test_after_an_unclean_election_only_segments_of_the_same_lineage_count_as_copied(seed: int) -> None:
    """KAFKA-15241, as kip405-5: the new leader lacks records that its predecessor had copied."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 6)
        await until(lambda: in_tier(cluster) == [0] and bases(cluster, 2) == [4])
        await cluster.kill(host_of(2))
        await until(lambda: set(partition_image(cluster).isr) == {1})
        await write(client, 10, first=6)
        await until(lambda: in_tier(cluster) == [0, 4, 8])
        await cluster.kill(host_of(1))
        await cluster.start_broker(2)
        await until(lambda: leader_of(cluster) == 2 and replica(cluster, 2).is_leader)
        await write(client, 12, first=100)
        await until(lambda: bases(cluster, 2) == [16])
        expected = [*range(6), *range(100, 112)]
        assert list(readable(cluster, 2).values()) == expected
        await cluster.start_broker(1)
        await until(lambda: set(partition_image(cluster).isr) == {1, 2})
        await until(lambda: len(bases(cluster, 1)) == 1)
        await until(lambda: list(readable(cluster, 1).values()) == expected)

    with_unclean_elections(scenario, seed)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_copy_that_a_stopping_broker_interrupts_does_not_count(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        usual, cluster.world.tier.offload_seconds = cluster.world.tier.offload_seconds, (0.1, 0.6)
        await write(client, 22)
        await asyncio.sleep(cluster.world.random.uniform(1, 6))
        await cluster.stop_broker(1)
        cluster.world.tier.offload_seconds = usual
        await cluster.start_broker(1)
        await until(lambda: bases(cluster) == [20])
        assert sorted(set(in_tier(cluster))) == list(range(0, 20, 4))
        assert list(readable(cluster, 1).values()) == list(range(22))

    with_tier(scenario, seed=seed)


def test_a_slow_tier_does_not_slow_produce() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        cluster.world.tier.offload_seconds = (5.0, 5.0)
        began = cluster.world.loop.time()
        await write(client, 50)
        assert cluster.world.loop.time() - began < 5.0
        await until(lambda: len(in_tier(cluster)) > 0, 120)

    with_tier(scenario)
