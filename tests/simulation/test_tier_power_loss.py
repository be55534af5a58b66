"""Remote segments survive a power loss, and also the loss of their remote log metadata."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from tests.simulation.steps import partition_image, seeds, storage_of, until, write
from tests.simulation.tiered_replicas import REPLICATED, all_in_sync, leader_of, readable
from tests.simulation.tiered_topics import (
    TIER,
    bases,
    finished,
    in_tier,
    log_of,
    replica,
    role_of,
    with_tier,
)

COPIED = list(range(20))
SEEN: dict[str, Any] = {"configs": {"min.insync.replicas": "2"}, **REPLICATED}


async def copied(cluster: SimulatedCluster, client: Cluster) -> None:
    """Write 22 records, and wait until 0 to 19 are only in the tier, and 20 and 21 on the local disks."""
    await write(client, 22)
    for broker in cluster.brokers:
        await until(lambda broker=broker: bases(cluster, broker) == [20])  # type: ignore[misc]


async def leads_again(cluster: SimulatedCluster) -> int:
    """Wait until a leader has looked for its log start in the tier; return its id."""
    await until(lambda: leader_of(cluster) in cluster.brokers)
    leader = leader_of(cluster)
    await until(lambda: replica(cluster, leader).is_leader)
    await until(lambda: role_of(cluster, leader).started_log is log_of(cluster, leader), 60)
    return leader


def forget_metadata(cluster: SimulatedCluster, broker: int, *, keep: int = 0) -> None:
    """Delete the metadata topic from the disk of a broker that is down, except the first bytes of each log."""
    files = storage_of(cluster, broker).files
    for path in [path for path in files if "remote_log_snapshot" in path]:
        del files[path]
    for path in [path for path in files if f"/{REMOTE_LOG_METADATA_TOPIC}-" in path and path.endswith(".log")]:
        del files[path].data[keep:]


@pytest.mark.parametrize("seed", seeds(6))
def test_a_power_loss_loses_no_record_that_is_only_in_the_tier(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await copied(cluster, client)
        await cluster.lose_power(host_of(1))
        await cluster.start_broker(1)
        await leads_again(cluster)
        assert finished(cluster) == [(first, first + 3) for first in range(0, 20, 4)]
        assert log_of(cluster).log_start_offset == 0
        assert list(readable(cluster, 1).values())[:20] == COPIED

    with_tier(scenario, seed=seed)


@pytest.mark.parametrize("seed", seeds(6))
def test_a_power_loss_of_all_brokers_loses_no_record_that_is_only_in_the_tier(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await copied(cluster, client)
        brokers = list(cluster.brokers)
        for number in brokers:
            await cluster.lose_power(host_of(number))
        for number in brokers:
            await cluster.start_broker(number)
        leader = await leads_again(cluster)
        await all_in_sync(cluster)
        for number in brokers:
            await until(lambda number=number: len(finished(cluster, number)) == 5)  # type: ignore[misc]
            assert log_of(cluster, number).log_start_offset == 0
        assert list(readable(cluster, leader).values())[:20] == COPIED

    with_tier(scenario, seed=seed, brokers=3, **SEEN)


@pytest.mark.parametrize("keep", [0, 700])
def test_a_leader_adopts_complete_segments_that_are_missing_in_the_metadata(keep: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await copied(cluster, client)
        await cluster.kill(host_of(1))
        forget_metadata(cluster, 1, keep=keep)
        await cluster.start_broker(1)
        await leads_again(cluster)
        assert log_of(cluster).log_start_offset == 0
        assert list(readable(cluster, 1).values()) == list(range(22))
        assert in_tier(cluster) == list(range(0, 20, 4))
        assert finished(cluster) == [(first, first + 3) for first in range(0, 20, 4)]

    with_tier(scenario)


def test_a_leader_that_cannot_read_segments_missing_in_the_metadata_waits_and_logs_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await copied(cluster, client)
        await cluster.kill(host_of(1))
        forget_metadata(cluster, 1)
        await cluster.start_broker(1)
        cluster.world.tier.fail(TIER, errno.EIO)
        capsys.readouterr()
        await until(lambda: leader_of(cluster) == 1 and replica(cluster).is_leader)
        await asyncio.sleep(30)
        assert log_of(cluster).log_start_offset == 0
        assert "remote log: copy failed" in capsys.readouterr().err
        cluster.world.tier.heal()
        await leads_again(cluster)
        assert log_of(cluster).log_start_offset == 0
        assert list(readable(cluster, 1).values()) == list(range(22))

    with_tier(scenario)


def test_a_damaged_segment_is_not_adopted(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await copied(cluster, client)
        await cluster.kill(host_of(1))
        forget_metadata(cluster, 1)
        [damaged] = [path for path in cluster.world.tier.files if "00000000000000000004-" in path and ".log" in path]
        cluster.world.tier.files[damaged].data[100] ^= 1
        capsys.readouterr()
        await cluster.start_broker(1)
        await leads_again(cluster)
        assert finished(cluster) == [(first, first + 3) for first in (0, 8, 12, 16)]
        assert log_of(cluster).log_start_offset == 0
        assert "is left out" in capsys.readouterr().err

    with_tier(scenario)


def test_followers_keep_remote_segments_that_a_leader_without_metadata_does_not_know() -> None:
    """The local log of the new leader begins later than theirs, and it knows no segment in the tier."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await copied(cluster, client)
        brokers = list(cluster.brokers)
        for number in brokers:
            await cluster.kill(host_of(number))
            forget_metadata(cluster, number)
        for number in brokers:
            await cluster.start_broker(number)
        await leads_again(cluster)
        await all_in_sync(cluster)
        assert partition_image(cluster).leader == leader_of(cluster)
        for number in brokers:
            await until(lambda number=number: len(finished(cluster, number)) == 5)  # type: ignore[misc]
            assert log_of(cluster, number).log_start_offset == 0
            assert list(readable(cluster, number).values()) == list(range(22))

    with_tier(scenario, brokers=3, **SEEN)
