"""Followers whose leaders have the beginning of the log in the tier only (KIP-405; docs/kafka-semantics.md:
Followers that begin in the tier)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Sequence
from typing import Any

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.lab.cluster import NodeEnded, SimulatedCluster, host_of
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.protocol.types import Offset
from milena.storage.log import tiering
from milena.storage.log.unified_log import UnifiedLog
from tests.simulation.joining_replicas import A, B, add_replica, call, joined, records, state_of
from tests.simulation.steps import partition_image, seeds, storage_of, until, write
from tests.simulation.tiered_replicas import REPLICATED, leader_of, readable
from tests.simulation.tiered_topics import (
    ROOT,
    TIER,
    bases,
    finished,
    log_of,
    replica,
    with_tier,
    with_unclean_elections,
)

WHOLE = {"internal.segment.bytes": "1000000", "local.retention.bytes": "-2"}
"""Segments are rolled and deleted locally only when a test requests it."""
WAIT = 2.0
"""Seconds that a fetch may wait at the leader; the first fetch of an added replica waits."""
ERRORS = "kafka_server_brokertopicmetrics_buildremotelogauxstateerrorspersec_total"
REQUESTS = "kafka_server_brokertopicmetrics_buildremotelogauxstaterequestspersec_total"


async def described(cluster: SimulatedCluster, broker: int) -> Any:
    return await call(cluster, broker, "describe_partition", topic="t", partition=0)


async def write_segments(cluster: SimulatedCluster, client: Cluster, *segments: Sequence[int]) -> None:
    """Write segments with records of these epochs on the only leader, which is restarted for each new epoch."""
    written = int(log_of(cluster, A).log_end_offset)
    epoch = segments[0][0] if written == 0 else None
    for number, epochs in enumerate(segments):
        if number:
            await call(cluster, A, "roll", topic="t", partition=0)
        for one in epochs:
            if epoch is not None and one != epoch:
                await cluster.kill(host_of(A))
                await cluster.start_broker(A)
                await until(lambda: replica(cluster, A).is_leader)
            epoch = one
            await write(client, 1, first=written)
            written += 1


async def leave_local(cluster: SimulatedCluster, client: Cluster, count: int) -> None:
    """Delete the first ``count`` local segments of the leader."""
    log = log_of(cluster, A)
    gone = sum(segment.size for segment in list(log.segments)[:count])
    await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"local.retention.bytes": str(log.size - gone)})
    left = len(bases(cluster, A)) - count
    await until(lambda: len(bases(cluster, A)) == left, 5)


def renumbered(cluster: SimulatedCluster, broker: int) -> dict[int, int]:
    """Leader epoch to start offset, numbered as in the KIP: 0 is the first epoch that has a record."""
    known = [entry.epoch for entry in log_of(cluster, A).epochs.entries]
    return {known.index(entry.epoch): entry.start for entry in log_of(cluster, broker).epochs.entries}


def producers(log: UnifiedLog) -> dict[int, int]:
    """Producer id to its last offset."""
    return {producer: entry.last_offset for producer, entry in log.producers}


def test_kip405_1_a_new_empty_follower() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write_segments(cluster, client, (0, 0, 0), (1, 1, 2), (2, 3))
        await until(lambda: finished(cluster) == [(0, 2), (3, 5)])
        await leave_local(cluster, client, 1)
        located = await call(cluster, A, "hold", api="LIST_OFFSETS", peer="broker-2")
        ends = await call(cluster, A, "delay", api="OFFSET_FOR_LEADER_EPOCH", peer="broker-2", ms=0)
        await add_replica(client, A, B)
        await call(cluster, A, "wait", rule=located["rule"], hits=1, seconds=5)
        fetches = await call(cluster, A, "hold", api="FETCH", peer="broker-2-fetcher")
        await call(cluster, A, "release", rule=located["rule"])
        await call(cluster, A, "wait", rule=fetches["rule"], hits=1, seconds=5)
        follower = await described(cluster, B)
        assert (follower["fetcher"]["state"], await records(cluster, B)) == ("Fetching", {})
        assert renumbered(cluster, B) == {0: 0, 1: 3, 2: 5}
        assert [follower[name] for name in ("log_start_offset", "local_log_start_offset", "log_end_offset")] == [
            0,
            3,
            3,
        ]
        rules = {rule["rule"]: rule for rule in await call(cluster, A, "rules")}
        assert rules[ends["rule"]]["hits"] == 0, "the tier has said it all"
        await call(cluster, A, "release", rule=fetches["rule"])
        await until(lambda: joined(cluster, A, B), 5)
        for broker in (A, B):
            assert await records(cluster, broker) == {offset: offset for offset in range(3, 8)}
            assert renumbered(cluster, broker) == {0: 0, 1: 3, 2: 5, 3: 7}
            await until(lambda broker=broker: log_of(cluster, broker).high_watermark == 8)  # type: ignore[misc]

    with_tier(scenario, brokers=2, replicas=1, configs=WHOLE)


def test_kip405_2_an_out_of_sync_follower() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write_segments(cluster, client, (0, 0, 0), (1,))
        await add_replica(client, A, B)
        await until(lambda: joined(cluster, A, B))
        assert log_of(cluster, B).log_end_offset == 4
        await cluster.kill(host_of(B))
        await until(lambda: joined(cluster, A))
        await write_segments(cluster, client, (1, 2))
        await call(cluster, A, "roll", topic="t", partition=0)
        await until(lambda: finished(cluster) == [(0, 2), (3, 5)])
        await write_segments(cluster, client, (2, 3, 3), (3,))

        ends = await call(cluster, A, "hold", api="OFFSET_FOR_LEADER_EPOCH", peer="broker-2", side="response")
        starting = asyncio.get_running_loop().create_task(cluster.start_broker(B))
        await call(cluster, A, "wait", rule=ends["rule"], hits=1, seconds=5)
        assert state_of(cluster) == "Truncating"
        fetches = await call(cluster, A, "hold", api="FETCH", peer="broker-2-fetcher")
        await call(cluster, A, "release", rule=ends["rule"])
        await starting
        await until(lambda: state_of(cluster) == "Fetching")
        assert await records(cluster, B) == {offset: offset for offset in range(4)}
        assert renumbered(cluster, B) == {0: 0, 1: 3}

        await until(lambda: finished(cluster) == [(0, 2), (3, 5), (6, 8)])
        await leave_local(cluster, client, 3)
        await write(client, 2, first=10)
        cluster.world.tier.fail(TIER, 5)
        await call(cluster, A, "release", rule=fetches["rule"])
        await until(lambda: state_of(cluster) == "BuildingRemoteLogAux", 5)
        assert await records(cluster, B) == {}
        await asyncio.sleep(3)
        assert state_of(cluster) == "BuildingRemoteLogAux"
        metrics = cluster.brokers[B].metrics
        assert metrics.value(REQUESTS, topic="t") >= metrics.value(ERRORS, topic="t") >= 3

        cluster.world.tier.heal()
        await until(lambda: joined(cluster, A, B), 5)
        for broker in (A, B):
            assert await records(cluster, broker) == {9: 9, 10: 10, 11: 11}
            assert renumbered(cluster, broker) == {0: 0, 1: 3, 2: 5, 3: 7}

    with_tier(scenario, brokers=2, replicas=1, configs=WHOLE)


async def written_and_tiered(cluster: SimulatedCluster, client: Cluster) -> None:
    """Write 22 records in several epochs, until the leader has only the last two locally, and wipe the other broker."""
    await write_segments(cluster, client, (0, 0, 1, 1), (1, 2, 2, 2), (3, 3), (4, 5))
    await until(lambda: len(finished(cluster)) == 3)
    await leave_local(cluster, client, 3)


async def rejoins(cluster: SimulatedCluster, seconds: float = 30) -> None:
    await until(lambda: joined(cluster, A, B), seconds)
    assert log_of(cluster, B).epochs.entries == log_of(cluster, A).epochs.entries
    assert bases(cluster, B) == [log_of(cluster, A).local_log_start_offset]
    assert await records(cluster, A) == await records(cluster, B)
    await until(lambda: readable(cluster, B) == readable(cluster, A))


@pytest.mark.parametrize("seed", seeds(6))
def test_a_follower_that_loses_power_at_any_step_builds_its_log_again(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await written_and_tiered(cluster, client)
        await add_replica(client, A, B)
        for number in range(8):
            await asyncio.sleep(0.004 * number + cluster.world.random.uniform(0, 0.01))
            await cluster.lose_power(host_of(B))
            starting = asyncio.get_running_loop().create_task(cluster.start_broker(B))
            await asyncio.wait([starting], timeout=0.02 + 0.005 * number)
            if not starting.done() and cluster.world.random.below(2):
                await cluster.lose_power(host_of(B))
                with contextlib.suppress(NodeEnded):
                    await starting
                starting = asyncio.get_running_loop().create_task(cluster.start_broker(B))
            await starting
            assert set(log_of(cluster, B).epochs.entries) <= set(log_of(cluster, A).epochs.entries)
        await rejoins(cluster)

    with_tier(scenario, seed=seed, brokers=3, replicas=1, configs=WHOLE, **REPLICATED)


@pytest.mark.parametrize("suffix", ["leader_epoch_checkpoint", "snapshot"])
@pytest.mark.parametrize("damage", ["missing", "cut", "foreign"])
def test_a_follower_retries_with_a_damaged_tier_and_never_uses_it(suffix: str, damage: str) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await written_and_tiered(cluster, client)
        files = cluster.world.tier.files
        path = next(one for one in files if one.startswith(ROOT) and "/00000000000000000008-" in one and suffix in one)
        whole = bytes(files[path].data)
        inode = files[path]
        if damage == "missing":
            del files[path]
        else:
            inode.data[:] = whole[:-1] if damage == "cut" else b"0\n1\n77 0\n"
        await add_replica(client, A, B)
        await asyncio.sleep(5)
        assert state_of(cluster) == "BuildingRemoteLogAux"
        assert not log_of(cluster, B).epochs.entries
        assert cluster.brokers[B].metrics.value(ERRORS, topic="t") > 5
        inode.data[:] = whole
        files[path] = inode
        await rejoins(cluster, 5)

    with_tier(scenario, brokers=2, replicas=1, configs=WHOLE)


def test_a_follower_that_has_lost_its_leader_epochs_gets_them_again() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await written_and_tiered(cluster, client)
        await add_replica(client, A, B)
        await rejoins(cluster)
        folder = log_of(cluster, B).folder
        await cluster.kill(host_of(B))
        await until(lambda: joined(cluster, A))
        del storage_of(cluster, B).files[f"{folder}/leader-epoch-checkpoint"]
        await cluster.start_broker(B)
        await rejoins(cluster)

    with_tier(scenario, brokers=2, replicas=1, configs=WHOLE)


def test_state_that_was_built_for_an_earlier_leader_epoch_is_dropped() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await written_and_tiered(cluster, client)
        cluster.world.tier.offload_seconds = (3.0, 3.0)
        await add_replica(client, A, B)
        await until(lambda: state_of(cluster) == "BuildingRemoteLogAux", 5)
        epoch = log_of(cluster, A).epochs.latest
        await cluster.kill(host_of(A))
        await cluster.start_broker(A)
        await until(lambda: replica(cluster, A).is_leader and log_of(cluster, A).epochs.latest != epoch)
        await write(client, 2, first=12)
        cluster.world.tier.offload_seconds = (0.0001, 0.002)
        assert log_of(cluster, B).log_end_offset == 0
        await rejoins(cluster)

    with_tier(scenario, brokers=2, replicas=1, configs=WHOLE)


def test_a_ready_partition_does_not_wait_for_the_fetch_of_other_partitions() -> None:
    """The other fetch waits at the leader, and does not name the ready partition."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await written_and_tiered(cluster, client)
        topic = admin.NewTopic("idle", assignments={0: [A, B]})
        assert await admin.create_topics(client, [topic]) == {"idle": None}
        await write(client, 1, "idle")
        await asyncio.sleep(2)
        began = cluster.world.loop.time()
        await add_replica(client, A, B)
        await until(lambda: joined(cluster, A, B), 5)
        assert cluster.world.loop.time() - began < 0.3 + WAIT

    with_tier(scenario, brokers=2, replicas=1, configs=WHOLE, replica_fetch_wait_max_ms=round(1000 * WAIT))


def test_a_slow_tier_does_not_delay_other_partitions() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await written_and_tiered(cluster, client)
        cluster.world.tier.offload_seconds = (60.0, 60.0)
        await add_replica(client, A, B)
        await until(lambda: state_of(cluster) == "BuildingRemoteLogAux", 5)
        topic = admin.NewTopic("other", assignments={0: [A, B]})
        assert await admin.create_topics(client, [topic]) == {"other": None}
        began = cluster.world.loop.time()
        await write(client, 20, "other")
        assert cluster.world.loop.time() - began < 1
        assert state_of(cluster) == "BuildingRemoteLogAux"
        cluster.world.tier.offload_seconds = (0.0001, 0.002)

    with_tier(scenario, brokers=2, replicas=1, configs=WHOLE)


@pytest.mark.parametrize("log_start", [0, 3])
def test_kip1023_an_empty_follower_may_begin_where_the_tier_ends(log_start: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write_segments(cluster, client, (0, 0, 1, 1), (1, 2, 2, 2), (3, 3), (4, 5))
        await until(lambda: len(finished(cluster)) == 3)
        await leave_local(cluster, client, 1)
        replica(cluster, A).delete_records(Offset(log_start))
        await add_replica(client, A, B)
        await until(lambda: joined(cluster, A, B), 10)
        log = log_of(cluster, B)
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (log_start, 10, 12)
        assert log.epochs.entries == log_of(cluster, A).epochs.entries
        assert log_of(cluster, A).local_log_start_offset == 4

    with_tier(
        scenario,
        brokers=2,
        replicas=1,
        configs=WHOLE,
        follower_fetch_last_tiered_offset_enable=True,
    )


def test_kip1023_a_follower_with_records_begins_at_the_local_log_start_of_its_leader() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        # B has a part of the tier's metadata: without it no broker knows whether a missing tier is new.
        cluster.world.tier.folders.update({TIER: None, ROOT: None})
        await write(client, 2)
        await add_replica(client, A, B)
        await until(lambda: joined(cluster, A, B))
        await cluster.kill(host_of(B))
        await until(lambda: joined(cluster, A))
        for first in (2, 6, 10):
            await write(client, 4, first=first)
            await call(cluster, A, "roll", topic="t", partition=0)
        await write(client, 2, first=14)
        await until(lambda: finished(cluster) == [(0, 5), (6, 9), (10, 13)])
        await leave_local(cluster, client, 1)
        await cluster.start_broker(B)
        await until(lambda: joined(cluster, A, B), 10)
        log = log_of(cluster, B)
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 6, 16)
        assert log_of(cluster, A).local_log_start_offset == 6

    with_tier(
        scenario,
        brokers=2,
        replicas=1,
        configs=WHOLE,
        follower_fetch_last_tiered_offset_enable=True,
    )


@pytest.mark.parametrize("seed", seeds(3))
def test_a_new_replica_copies_the_log_of_an_uncleanly_elected_leader(seed: int) -> None:
    """It has the leader epochs of the new leader, and reads the remote segments of the same lineage."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 6)
        await until(lambda: finished(cluster) == [(0, 3)] and bases(cluster, 2) == [4])
        await cluster.kill(host_of(2))
        await until(lambda: joined(cluster, 1))
        await write(client, 10, first=6)
        await until(lambda: len(finished(cluster)) == 3)
        await cluster.kill(host_of(1))
        await cluster.start_broker(2)
        await until(lambda: leader_of(cluster) == 2 and replica(cluster, 2).is_leader)
        await write(client, 12, first=100)
        await until(lambda: bases(cluster, 2) == [16])
        await add_replica(client, 2, 3)
        await until(lambda: joined(cluster, 2, 3) and not partition_image(cluster).adding)
        assert [entry.start for entry in log_of(cluster, 3).epochs.entries] == [0, 6]
        assert bases(cluster, 3) == [16]
        await until(lambda: list(readable(cluster, 3).values()) == [*range(6), *range(100, 112)])

    with_unclean_elections(scenario, seed)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_log_can_be_moved_while_it_builds_its_state_from_the_tier(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await written_and_tiered(cluster, client)
        cluster.world.tier.offload_seconds = (0.05, 0.5)
        await add_replica(client, A, B)
        await until(lambda: state_of(cluster) == "BuildingRemoteLogAux", 5)
        broker = cluster.brokers[B]
        before = log_of(cluster, B)
        await asyncio.sleep(0.2 * seed)
        target = next(one for one in broker.logs.dirs if one is not broker.logs.dir_of(before))
        broker.log_mover.move(replica(cluster, B), target)
        await until(lambda: log_of(cluster, B) is not before)
        await rejoins(cluster)

    with_tier(scenario, seed=seed, brokers=2, replicas=1, configs=WHOLE, log_dirs="/data-1,/data-2")


def test_only_the_directory_goes_offline_that_fails_while_a_log_builds_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The partition goes offline while it builds its state from the tier, which ends the attempt."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await written_and_tiered(cluster, client)
        begin = tiering.start_in_tier
        failed: list[str] = []

        def on_a_broken_disk(log: UnifiedLog, *of: Any, **more: Any) -> None:
            failed.append(log.folder.rpartition("/")[0])
            storage_of(cluster, B).fail(failed[0], errno.EIO)
            begin(log, *of, **more)

        monkeypatch.setattr(tiering, "start_in_tier", on_a_broken_disk)
        await add_replica(client, A, B)
        await until(lambda: bool(failed), 30)
        await asyncio.sleep(5)
        assert replica(cluster, B).log is None and len(failed) == 1
        cluster.check_alive()

    with_tier(scenario, brokers=2, replicas=1, configs=WHOLE, log_dirs="/data-1,/data-2", metadata_log_dir="/metadata")


@pytest.mark.parametrize("seed", seeds(3))
def test_a_log_that_is_truncated_below_its_local_start_restores_producers_from_the_tier(seed: int) -> None:
    """The uncleanly elected leader still has records locally that the follower has only in the tier."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 6)
        await until(lambda: finished(cluster) == [(0, 3)] and bases(cluster, B) == [4])
        await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"local.retention.bytes": "-2"})
        await cluster.stop_broker(B)
        await until(lambda: joined(cluster, A))
        await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"local.retention.bytes": "1"})
        await write(client, 10, first=6)
        await until(lambda: bases(cluster, A) == [12])
        await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"local.retention.bytes": "-2"})
        await cluster.kill(host_of(A))
        await cluster.start_broker(B)
        await until(lambda: leader_of(cluster) == B and replica(cluster, B).is_leader)
        await write(client, 3, first=100)
        await cluster.start_broker(A)
        await until(lambda: joined(cluster, A, B))
        log, leaders = log_of(cluster, A), log_of(cluster, B)
        assert log.local_log_start_offset == leaders.local_log_start_offset == 4
        assert producers(log) == producers(leaders)
        assert len(producers(log)) == 2
        assert log.epochs.entries == leaders.epochs.entries
        assert await records(cluster, A) == await records(cluster, B)

    with_unclean_elections(scenario, seed)
