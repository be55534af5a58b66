"""How far the metadata of each partition has been read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from milena.protocol.types import Offset
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.read_positions import OUTDATED_AFTER, FollowedPartition, MetadataPartition
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState
from tests.unit.tiered.segments import PARTITION, segment, update

ONE = segment(1, 0, 9, {0: 0})
FINISHED = update(ONE, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)


def begun(at: int, target: int) -> FollowedPartition:
    followed = FollowedPartition(PARTITION)
    followed.begin(RemoteLogMetadataCache(), Offset(at), Offset(target))
    return followed


def test_a_partition_is_ready_once_it_was_read_to_where_the_log_ended_at_its_assignment() -> None:
    assert not FollowedPartition(PARTITION).ready
    followed = begun(3, 5)
    ready = []
    for position in (4, 5, 6):
        followed.advance(Offset(position))
        ready.append(followed.ready)
    assert ready == [False, True, True]
    assert begun(5, 5).ready and begun(0, 0).ready


def test_records_before_its_own_beginning_are_not_taken_again() -> None:
    followed = begun(3, 5)
    assert followed.take(Offset(2), ONE) and len(followed.cache) == 0
    assert followed.take(Offset(3), ONE) and len(followed.cache) == 1


def test_before_its_beginning_is_known_nothing_is_taken() -> None:
    followed = FollowedPartition(PARTITION)
    assert followed.take(Offset(3), ONE) and len(followed.cache) == 0


def test_an_invalid_state_transition_is_reported() -> None:
    assert not begun(0, 0).take(Offset(0), FINISHED)


def test_going_back_for_another_does_not_undo_what_was_read() -> None:
    source = MetadataPartition(4)
    source.followed[PARTITION] = followed = begun(0, 2)
    source.advance(Offset(7))
    source.advance(Offset(1))
    assert (source.position, followed.next, followed.ready) == (1, 7, True)


def test_a_snapshot_is_due_after_a_change_and_after_many_records_of_others() -> None:
    followed = begun(0, 0)
    due = [followed.outdated]
    followed.take(Offset(0), ONE)
    due.append(followed.outdated)
    followed.saved()
    due.append(followed.outdated)
    for position in (OUTDATED_AFTER - 1, OUTDATED_AFTER):
        followed.advance(Offset(position))
        due.append(followed.outdated)
    assert due == [False, True, False, False, True]


def test_a_partition_that_must_be_read_again_is_not_ready() -> None:
    source = MetadataPartition(4)
    source.followed[PARTITION] = followed = begun(0, 0)
    before = (followed.ready, source.unlocated)
    source.forget()
    assert (before, (followed.ready, source.unlocated)) == ((True, False), (False, True))
    assert source.position is None


def test_who_waits_wakes_with_each_change() -> None:
    async def scenario() -> list[bool]:
        followed = FollowedPartition(PARTITION)
        woken = []
        changes: list[Callable[[], None]] = [
            lambda: followed.begin(RemoteLogMetadataCache(), Offset(0), Offset(1)),
            lambda: followed.advance(Offset(1)),
            followed.leave,
        ]
        for change in changes:
            waiting = asyncio.ensure_future(followed.wait_moved())
            await asyncio.sleep(0)
            change()
            await asyncio.wait_for(waiting, 1)
            woken.append(waiting.done())
        return woken

    assert asyncio.run(scenario()) == [True] * 3
