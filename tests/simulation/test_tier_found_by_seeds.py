"""Bugs that simulated seeds with a tier have found, each as a scenario."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.producer import Producer
from milena.lab.cluster import SimulatedCluster, host_of
from milena.lab.world.power import Inode
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.protocol.types import Offset
from milena.protocol.uuids import to_text
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentId,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
)
from milena.tiered.work.deletion import update_of
from tests.simulation.joining_replicas import add_replica, joined, records, state_of
from tests.simulation.steps import seeds, storage_of, until, values, write
from tests.simulation.tiered_replicas import leader_of
from tests.simulation.tiered_topics import (
    TIER,
    bases,
    finished,
    in_tier,
    known_segments,
    log_of,
    replica,
    role_of,
    with_tier,
    with_unclean_elections,
)

A, B = 1, 2


async def alter(client: Cluster, values: Mapping[str, str]) -> None:
    await admin.alter_configs(client, TOPIC_RESOURCE, "t", values)


def test_a_follower_without_leader_epochs_keeps_its_records_until_its_leader_answers() -> None:
    """Seed 11: the follower is elected uncleanly, with records that the tier lacks. It had dropped records before: they
    were a hole that no consumer could read, and behind it no follower could build its state."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 6)
        await until(lambda: finished(cluster) == [(0, 3)] and bases(cluster, B) == [4])
        folder = log_of(cluster, B).folder
        await cluster.kill(host_of(B))
        await until(lambda: joined(cluster, A))
        del storage_of(cluster, B).files[f"{folder}/leader-epoch-checkpoint"]
        cluster.world.machine(host_of(A)).pause()
        await cluster.start_broker(B)
        await until(lambda: state_of(cluster, B) == "LocatingLocalStart")
        assert await records(cluster, B) == {4: 4, 5: 5}
        await until(lambda: leader_of(cluster) == B and replica(cluster, B).is_leader, 30)
        cluster.world.machine(host_of(A)).resume()
        await until(lambda: joined(cluster, A, B), 30)
        await write(client, 2, first=6)
        for broker in (A, B):
            found = await records(cluster, broker)
            assert {offset: found[offset] for offset in range(4, 8)} == {4: 4, 5: 5, 6: 6, 7: 7}

    with_unclean_elections(scenario, 1)


def test_former_copies_do_not_count_after_remote_storage_is_disabled_and_enabled() -> None:
    """KIP-950: local records stay until they are in the tier again. Kafka keeps its highest copied offset."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 10)
        await until(lambda: finished(cluster) == [(0, 3), (4, 7)] and bases(cluster) == [0, 4, 8])
        await alter(client, {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
        await until(lambda: not in_tier(cluster))
        assert log_of(cluster).log_start_offset == 0
        cluster.world.tier.fail(TIER, 5)
        await alter(client, {"remote.storage.enable": "true", "local.retention.bytes": "1"})
        await asyncio.sleep(5)
        assert bases(cluster) == [0, 4, 8]
        cluster.world.tier.heal()
        await until(lambda: in_tier(cluster) == [0, 4] and bases(cluster) == [8])
        assert await values(client, 10) == list(range(10))

    with_tier(scenario, configs={"local.retention.bytes": "-2"})


def test_segments_whose_deletion_is_not_announced_stay_if_remote_storage_is_enabled_again() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 10)
        await until(lambda: bases(cluster) == [8])
        await alter(client, {"local.retention.bytes": "-2"})
        await write(client, 10, first=10)
        await until(lambda: finished(cluster)[-1] == (12, 15))
        log = log_of(cluster)
        tier = cluster.brokers[1].tier
        assert tier is not None
        publish = tier.tier.metadata.update

        async def slowly(update: RemoteLogSegmentUpdate) -> None:
            await asyncio.sleep(1)
            await publish(update)

        tier.tier.metadata.update = slowly  # type: ignore[method-assign]
        await alter(client, {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
        await until(lambda: not log.remote_enabled)
        await alter(client, {"remote.storage.enable": "true", "local.retention.bytes": "1"})
        await write(client, 4, first=20)
        await until(lambda: bases(cluster)[0] >= 16, 60)
        assert log.log_start_offset == 8
        await asyncio.sleep(20)
        consumer = Consumer(client, reset=None)
        consumer.assign({("t", 0): 8})
        read: list[int] = []
        while len(read) < 16:
            read += [one.offset for one in await consumer.poll(5)]
        await consumer.close()
        assert read == list(range(8, 24))

    with_tier(scenario)


@pytest.mark.parametrize("seed", seeds(3))
def test_segments_whose_deletion_is_being_announced_do_not_count_as_copied(seed: int) -> None:
    """Seed 100097: the record of a deletion waited for its acknowledgement when remote storage was enabled again, and
    its segment counted as copied. So the local records were deleted, and then the remote ones."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 10)
        await until(lambda: all(finished(cluster, one) == [(0, 3), (4, 7)] for one in (A, B)))
        tier = cluster.brokers[A].tier
        assert tier is not None
        publish = tier.tier.metadata.update

        async def slowly(update: RemoteLogSegmentUpdate) -> None:
            await asyncio.sleep(10 if update.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED else 0)
            await publish(update)

        tier.tier.metadata.update = slowly  # type: ignore[method-assign]
        await alter(client, {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
        await until(lambda: not log_of(cluster, A).remote_enabled and not log_of(cluster, B).remote_enabled)
        await asyncio.sleep(1)
        cluster.world.tier.fail(TIER, errno.EIO, operation="write")
        limits = {"local.retention.bytes": "1", "retention.bytes": str(log_of(cluster).size + 100)}
        await alter(client, {"remote.storage.enable": "true", **limits})
        await until(lambda: log_of(cluster, A).remote_enabled and log_of(cluster, B).remote_enabled)
        await asyncio.sleep(40)
        assert bases(cluster, A) == bases(cluster, B) == [0, 4, 8], "the tier is about to lack them"
        assert log_of(cluster).log_start_offset == 0, "what counts here must not count there too"
        cluster.world.tier.heal()
        await until(lambda: bases(cluster, A) == bases(cluster, B) == [8])
        assert await values(client, 10) == list(range(10))

    with_tier(scenario, seed=seed, brokers=2, configs={"local.retention.bytes": "-2"})


def test_a_follower_begins_with_the_batch_that_contains_the_log_start() -> None:
    """Seeds 23, 43, 55: DeleteRecords in the middle of a batch."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        producer = Producer(client)
        sent = [await producer.enqueue("t", str(number).encode(), partition=0) for number in range(6)]
        await producer.close()
        assert {(await one).offset for one in sent} == set(range(6))
        await cluster.kill(host_of(B))
        cluster.wipe(host_of(B))
        await until(lambda: joined(cluster, A))
        replica(cluster, A).delete_records(Offset(3))
        await cluster.start_broker(B)
        await until(lambda: joined(cluster, A, B), 30)
        await write(client, 2, first=6)
        await until(lambda: log_of(cluster, B).log_end_offset == 8)
        assert await records(cluster, B) == await records(cluster, A)
        await until(lambda: log_of(cluster, B).log_start_offset == 3)

    with_tier(scenario, brokers=3, replicas=2)


def test_a_follower_begins_behind_the_remote_segment_that_contains_the_log_start() -> None:
    """The leader epochs of the segment begin after its base offset, and are valid."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 4)
        replica(cluster, A).delete_records(Offset(2))
        await write(client, 2, first=4)
        await until(lambda: bases(cluster) == [4])
        assert log_of(cluster, A).log_start_offset == 2
        await add_replica(client, A, B)
        await until(lambda: joined(cluster, A, B), 30)
        assert log_of(cluster, B).epochs.entries == log_of(cluster, A).epochs.entries
        assert bases(cluster, B) == [4]

    with_tier(scenario, brokers=2, replicas=1)


@pytest.mark.parametrize("start", [5, 9])
def test_a_log_start_offset_survives_the_loss_of_its_checkpoint(start: int) -> None:
    """Seeds 91, 123: after DeleteRecords and a power loss the log started before its first leader epoch, and no
    consumer could read at the log start offset."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 10)
        await until(lambda: bases(cluster) == [8])
        replica(cluster).delete_records(Offset(start))
        await cluster.kill(host_of(A))
        storage_of(cluster, A).files.pop("/data/log-start-offset-checkpoint", None)
        await cluster.start_broker(A)
        await until(lambda: leader_of(cluster) == A and replica(cluster).is_leader)
        assert log_of(cluster).log_start_offset == start
        assert await values(client, 10 - start) == list(range(start, 10))

    with_tier(scenario)


def test_a_log_that_ends_before_its_start_begins_again_at_its_start() -> None:
    """Seed 255: the records that a power loss left had been deleted before, and had no leader epochs."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 10)
        await until(lambda: bases(cluster) == [8])
        replica(cluster).delete_records(Offset(9))
        path = f"{log_of(cluster).folder}/{8:020}.log"
        await cluster.kill(host_of(A))
        storage_of(cluster, A).files.pop("/data/log-start-offset-checkpoint", None)
        del storage_of(cluster, A).files[path].data[:]
        await cluster.start_broker(A)
        await until(lambda: leader_of(cluster) == A and replica(cluster).is_leader)
        log = log_of(cluster)
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (9, 9, 9)
        await write(client, 3, first=9)
        assert await values(client, 3) == [9, 10, 11]

    with_tier(scenario)


def test_a_log_begins_behind_a_segment_that_a_former_leader_deletes() -> None:
    """Seed 249: the former leader did not know of its successor, and expired the first segment of its log."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 10)
        await until(lambda: bases(cluster) == [8])
        tier = cluster.brokers[1].tier
        assert tier is not None
        first = known_segments(cluster).segments()[0]
        await tier.tier.metadata.update(
            update_of(tier.tier, first, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, UNFENCED)
        )
        await until(lambda: log_of(cluster).log_start_offset == 4, 5)
        assert await values(client, 6) == [4, 5, 6, 7, 8, 9]
        await until(lambda: in_tier(cluster) == [4], 5)

    with_tier(scenario)


@pytest.mark.parametrize("lost", ["gone", "cut"])
def test_another_copy_is_read_if_the_log_of_a_remote_segment_is_lost(lost: str) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 10)
        await until(lambda: bases(cluster) == [8])
        tier, role, log = cluster.brokers[1].tier, role_of(cluster), log_of(cluster)
        assert tier is not None
        first = known_segments(cluster).segments()[0]
        other = replace(first, segment_id=RemoteLogSegmentId(first.partition, UUID(int=1)))
        files = cluster.world.tier.files
        for path in [one for one in files if to_text(first.id) in one]:
            inode = files[path.replace(to_text(first.id), to_text(other.id))] = Inode(0)
            inode.data += files[path].data
        await tier.tier.metadata.add(replace(other, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED))
        await tier.tier.metadata.update(
            update_of(tier.tier, other, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, UNFENCED)
        )
        served = known_segments(cluster).segment_for(Offset(0), leader_epochs=log.epochs.entries, log_end=Offset(10))
        assert served is not None
        assert role.leads
        path = next(one for one in files if to_text(served.segment.id) in one and one.endswith(".log"))
        if lost == "gone":
            del files[path]
        else:
            del files[path].data[100:]
        assert await values(client, 10) == list(range(10))

    with_tier(scenario)
