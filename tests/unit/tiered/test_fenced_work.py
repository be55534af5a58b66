"""What a leader of a tiered partition may still do: its fence, its own deletions, and those of former leaders."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.metadata.metadata_manager import Deposed
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
)
from milena.tiered.work.copying import copy_round
from milena.tiered.work.deletion import announce_deletion, delete_segment, update_of
from milena.tiered.work.deletion_withdrawal import withdraw_deletions
from milena.tiered.work.fencing import accepted, fence
from milena.tiered.work.roles import ReplicaRole
from tests.unit.tiered.segments import fence as fence_of
from tests.unit.tiered.segments import segment
from tests.unit.tiered.segments import update as update_to
from tests.unit.tiered.tiered_log import Bench, on_bench

STARTED, FINISHED, MARKED, DELETED = RemoteLogSegmentState
NEXT = LeaderEpoch(1)


async def copied(bench: Bench, *, records: int = 2) -> tuple[ReplicaRole, RemoteLogSegmentMetadata]:
    """Three segments are in the tier; returns the leader's role and the first segment."""
    role = bench.role()
    bench.write(3, records)
    await copy_round(bench.tier, role)
    return role, bench.metadata.cache(role.partition).segments()[0]


def next_leader(bench: Bench) -> ReplicaRole:
    bench.replica.term, bench.replica.leader_epoch = bench.replica.term + 1, NEXT
    return bench.role()


def test_a_role_that_has_ended_publishes_no_fence() -> None:
    async def scenario(bench: Bench) -> None:
        await copied(bench)
        role = next_leader(bench)
        bench.replica.term += 1
        published = len(bench.metadata.published)
        await fence(bench.tier, role, bench.log)
        assert len(bench.metadata.published) == published

    on_bench(scenario)


def test_an_event_without_a_leader_epoch_is_accepted_whatever_is_known() -> None:
    async def scenario(bench: Bench) -> None:
        role, first = await copied(bench)
        unknown = segment(99, 0, 9, {0: 0}, partition=role.partition)
        assert accepted(bench.tier, unknown, MARKED, UNFENCED) is unknown
        before = replace(first, state=STARTED)
        assert accepted(bench.tier, before, MARKED, UNFENCED) is first

    on_bench(scenario)


def test_a_segment_that_is_not_known_any_more_belongs_to_another_broker() -> None:
    async def scenario(bench: Bench) -> None:
        role, _ = await copied(bench)
        unknown = segment(99, 0, 9, {0: 0}, partition=role.partition)
        with pytest.raises(Deposed, match="is not known any more"):
            accepted(bench.tier, unknown, MARKED, role.leader_epoch)

    on_bench(scenario)


def test_a_segment_in_another_state_belongs_to_another_broker() -> None:
    async def scenario(bench: Bench) -> None:
        role, first = await copied(bench)
        with pytest.raises(Deposed, match="is COPY_SEGMENT_FINISHED in leader epoch 0, and not DELETE_SEGMENT_STARTED"):
            accepted(bench.tier, first, MARKED, role.leader_epoch)

    on_bench(scenario)


def test_a_deletion_that_the_successor_has_finished_meanwhile_is_not_accepted() -> None:
    async def scenario(bench: Bench) -> None:
        role, first = await copied(bench)
        publish = bench.metadata.update

        async def behind_the_successor(update: RemoteLogSegmentUpdate) -> None:
            for state in (MARKED, DELETED):
                await publish(replace(update_to(first, state), leader_epoch=NEXT))
            await publish(update)

        bench.metadata.update = behind_the_successor  # type: ignore[method-assign]
        with pytest.raises(Deposed):
            await announce_deletion(bench.tier, first, role.leader_epoch)
        assert first.id in bench.tier.unreliable.of(role.partition)

    on_bench(scenario)


def test_a_store_gets_the_custom_metadata_that_the_record_lacks() -> None:
    async def scenario(bench: Bench) -> None:
        role, first = await copied(bench)
        await delete_segment(bench.tier, first, role.leader_epoch, custom_metadata=b"place")
        assert [one.custom_metadata for one in bench.store.deleted] == [b"place"]
        known = replace(first, custom_metadata=b"known")
        assert update_of(bench.tier, known, MARKED, NEXT).custom_metadata == b"known"
        assert update_of(bench.tier, known, MARKED, NEXT, custom_metadata=b"new").custom_metadata == b"new"

    on_bench(scenario)


async def with_a_deletion(bench: Bench) -> tuple[ReplicaRole, int]:
    """A former leader has started to delete the first of three segments; the third is local, too, and one that is not
    copied. Returns the next leader's role, and the bytes of the log."""
    role, first = await copied(bench, records=1)
    await announce_deletion(bench.tier, first, role.leader_epoch)
    bench.tier.unreliable.forget(role.partition)
    role = next_leader(bench)
    bench.write(1, epoch=NEXT)
    log = bench.log
    log.move_local_start(Offset(2))
    log.drop(log.segments.take_first(2))
    in_tier = sum(one.size for one in bench.metadata.cache(role.partition).segments())
    not_copied = sum(one.size for one in log.segments if one.base_offset > 2)
    assert not_copied
    return role, in_tier + not_copied


@pytest.mark.parametrize(("fewer", "withdrawn"), [(0, 1), (1, 1), ("the first segment", 0)])
def test_retention_counts_each_local_record_once(fewer: int | str, withdrawn: int) -> None:
    """A segment is beyond ``retention.bytes`` if the log is as long without it."""

    async def scenario(bench: Bench) -> None:
        role, size = await with_a_deletion(bench)
        first = bench.metadata.cache(role.partition).segments()[0]
        less = first.size if isinstance(fewer, str) else fewer
        bench.log.config = replace(bench.log.config, retention_bytes=size - less)
        await bench.metadata.update(fence_of(NEXT, role.partition))
        await withdraw_deletions(bench.tier, role, bench.log)
        assert len(bench.metadata.cache(role.partition).at_risk()) == withdrawn

    on_bench(scenario)
