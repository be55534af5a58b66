"""A leader that another has followed without its knowledge: what it publishes is void, and it deletes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from milena.protocol.types import ZERO_UUID, LeaderEpoch
from milena.tiered.metadata.metadata_manager import Deposed, RemoteLogMetadataError
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
)
from milena.tiered.work.copying import copy_round
from milena.tiered.work.deletion import announce_deletion, delete_segment, finish_deletion, update_of
from milena.tiered.work.expiration import erase, expire_round
from milena.tiered.work.roles import ReplicaRole
from tests.unit.tiered.segments import fence
from tests.unit.tiered.tiered_log import Bench, on_bench

STARTED, FINISHED, MARKED, DELETED = RemoteLogSegmentState
RETENTION_MS = 1000


def fences(bench: Bench) -> list[int]:
    return [one.leader_epoch for one in bench.metadata.published if one.segment_id.id == ZERO_UUID]


def successor_fences(bench: Bench, epoch: int = 1) -> Callable[[], Awaitable[None]]:
    async def tell() -> None:
        await bench.metadata.update(fence(epoch, bench.published_segments()[0].partition))

    return tell


async def expired(bench: Bench) -> ReplicaRole:
    """Three segments are in the tier, and too old."""
    role = bench.role()
    bench.write(3)
    await copy_round(bench.tier, role)
    await bench.runtime.clock.sleep(2 * RETENTION_MS / 1000)
    return role


def states(bench: Bench, role: ReplicaRole) -> list[RemoteLogSegmentState]:
    return [one.state for one in bench.metadata.cache(role.partition).segments()]


def test_a_leader_claims_before_its_first_work_and_once() -> None:
    async def scenario(bench: Bench) -> None:
        role = bench.role()
        bench.write(1)
        await copy_round(bench.tier, role)
        assert fences(bench) == [], "its first upload was one"
        bench.replica.term, bench.replica.leader_epoch = 2, LeaderEpoch(4)
        bench.metadata.published.clear()
        role = bench.role()
        bench.write(1, epoch=4)
        for _ in range(2):
            await copy_round(bench.tier, role)
            await expire_round(bench.tier, role)
        assert [one.leader_epoch for one in bench.metadata.published] == [4, 4, 4]
        assert fences(bench) == [4] and bench.metadata.published[0].segment_id.id == ZERO_UUID

    on_bench(scenario)


def test_a_claim_that_cannot_be_published_or_read_back_is_followed_by_no_work() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        bench.replica.term, bench.replica.leader_epoch = 2, LeaderEpoch(1)
        role, before = bench.role(), len(bench.metadata.published)
        bench.metadata.failure = RemoteLogMetadataError("no answer")
        for work in (copy_round, expire_round):
            with pytest.raises(RemoteLogMetadataError, match="no answer"):
                await work(bench.tier, role)
        assert (bench.log.log_start_offset, bench.stored()) == (0, [0, 2, 4])
        bench.metadata.failure = None
        await expire_round(bench.tier, role)
        assert bench.metadata.published[before].leader_epoch == 1 and fences(bench) == [1]

    on_bench(scenario, retention_ms=RETENTION_MS)


def test_a_leader_that_has_been_followed_marks_and_deletes_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        await successor_fences(bench)()
        published = len(bench.metadata.published)
        with pytest.raises(Deposed, match="epoch 1 has fenced the partition's tier, but this broker leads in 0"):
            await expire_round(bench.tier, role)
        with pytest.raises(Deposed):
            await copy_round(bench.tier, role)
        assert len(bench.metadata.published) == published
        assert (bench.stored(), bench.log.log_start_offset) == ([0, 2, 4], 0)

    on_bench(scenario, retention_ms=RETENTION_MS)


def test_a_mark_that_comes_behind_the_claim_removes_no_file() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        segment = bench.metadata.cache(role.partition).segments()[0]
        publish = bench.metadata.update

        async def behind_the_claim(update: RemoteLogSegmentUpdate) -> None:
            await publish(fence(1))
            await publish(update)

        bench.metadata.update = behind_the_claim  # type: ignore[method-assign]
        with pytest.raises(Deposed):
            await delete_segment(bench.tier, segment, role.leader_epoch)
        assert (states(bench, role), bench.stored(), bench.store.deleted) == ([FINISHED] * 3, [0, 2, 4], [])
        assert segment.id not in bench.tier.unreliable.of(role.partition), "it is whole"

    on_bench(scenario)


def test_the_same_mark_of_a_peer_without_the_fence_removes_them() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        await successor_fences(bench)()
        await delete_segment(bench.tier, bench.metadata.cache(role.partition).segments()[0], UNFENCED)
        assert bench.stored() == [2, 4]

    on_bench(scenario)


def test_between_the_mark_and_the_files_a_claim_leaves_them_to_the_successor() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        segment = bench.metadata.cache(role.partition).segments()[0]
        await announce_deletion(bench.tier, segment, role.leader_epoch)
        await successor_fences(bench)()
        with pytest.raises(Deposed):
            await finish_deletion(bench.tier, segment, role.leader_epoch)
        assert (states(bench, role), bench.stored()) == ([MARKED, FINISHED, FINISHED], [0, 2, 4])
        assert segment.id in bench.tier.unreliable.of(role.partition), "the mark holds"

    on_bench(scenario)


@pytest.mark.parametrize("other", ["successor", "Kafka broker"])
def test_a_deletion_that_another_brokers_record_follows_at_once_is_accepted_and_left_to_it(other: str) -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        segment = bench.metadata.cache(role.partition).segments()[0]
        publish = bench.metadata.update

        async def and_then(update: RemoteLogSegmentUpdate) -> None:
            await publish(update)
            await publish(fence(1) if other == "successor" else replace(update, leader_epoch=UNFENCED))

        bench.metadata.update = and_then  # type: ignore[method-assign]
        with pytest.raises(Deposed):
            await delete_segment(bench.tier, segment, role.leader_epoch)
        assert (states(bench, role), bench.stored()) == ([MARKED, FINISHED, FINISHED], [0, 2, 4])
        assert segment.id in bench.tier.unreliable.of(role.partition)

    on_bench(scenario)


def test_a_deletion_that_ends_behind_the_claim_is_repeated_by_the_successor() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        segment = bench.metadata.cache(role.partition).segments()[0]
        publish = bench.metadata.update

        async def late(update: RemoteLogSegmentUpdate) -> None:
            if update.state is DELETED and not update.is_fence:
                await publish(fence(1))
            await publish(update)

        bench.metadata.update = late  # type: ignore[method-assign]
        await delete_segment(bench.tier, segment, role.leader_epoch)
        assert (states(bench, role), bench.stored()) == ([MARKED, FINISHED, FINISHED], [2, 4])
        bench.replica.term, bench.replica.leader_epoch = 2, LeaderEpoch(1)
        await expire_round(bench.tier, bench.role())
        assert states(bench, role) == [FINISHED, FINISHED]

    on_bench(scenario)


def test_an_upload_that_ends_behind_the_claim_does_not_count() -> None:
    """Its local segment stays, and the successor copies it again."""

    async def scenario(bench: Bench) -> None:
        role = bench.role()
        bench.write(1)
        bench.store.copying = successor_fences(bench)
        with pytest.raises(Deposed):
            await copy_round(bench.tier, role)
        assert (states(bench, role), bench.log.highest_offset_in_remote_storage) == ([STARTED], -1)
        bench.store.copying = lambda: None
        bench.replica.term, bench.replica.leader_epoch = 2, LeaderEpoch(1)
        await copy_round(bench.tier, bench.role())
        assert states(bench, role) == [STARTED, FINISHED] or states(bench, role) == [FINISHED, STARTED]
        assert bench.log.highest_offset_in_remote_storage == 1

    on_bench(scenario)


def test_an_upload_that_begins_behind_the_claim_stores_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        role = bench.role()
        bench.write(1)
        add = bench.metadata.add

        async def behind_the_claim(metadata: RemoteLogSegmentMetadata) -> None:
            await bench.metadata.update(fence(1, role.partition))
            await add(metadata)

        bench.metadata.add = behind_the_claim  # type: ignore[method-assign]
        with pytest.raises(Deposed):
            await copy_round(bench.tier, role)
        assert bench.stored() == [] and len(bench.metadata.cache(role.partition)) == 0

    on_bench(scenario)


def test_a_former_leader_erases_no_partition_that_a_successor_has_claimed() -> None:
    """The topic was switched off and on again meanwhile."""

    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        segments = bench.metadata.cache(role.partition).segments()
        await successor_fences(bench)()
        assert await erase(bench.tier, role, segments, lambda: role.leader_epoch) == segments
        assert (states(bench, role), bench.stored()) == ([FINISHED] * 3, [0, 2, 4])

    on_bench(scenario)


def test_a_role_that_has_ended_never_speaks_for_its_successor() -> None:
    async def scenario(bench: Bench) -> None:
        role = bench.role()
        bench.replica.leader_epoch = LeaderEpoch(2)
        assert role.leader_epoch == 2, "it leads on in a new epoch"
        bench.replica.is_leader, bench.replica.leader_epoch = False, LeaderEpoch(3)
        assert role.leader_epoch == 2
        bench.replica.is_leader, bench.replica.term, bench.replica.leader_epoch = True, 2, LeaderEpoch(4)
        assert role.leader_epoch == 2 and bench.role().leader_epoch == 4

    on_bench(scenario)


def test_a_mark_of_kafka_is_honoured_without_a_leader_epoch() -> None:
    async def scenario(bench: Bench) -> None:
        role = await expired(bench)
        segment = bench.metadata.cache(role.partition).segments()[0]
        await bench.metadata.update(replace(update_of(bench.tier, segment, MARKED, UNFENCED), custom_metadata=None))
        await expire_round(bench.tier, role)
        assert bench.stored() == [2, 4]

    on_bench(scenario)
