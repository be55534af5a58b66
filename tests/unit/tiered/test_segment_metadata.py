"""What is known of a segment, and the states that may follow each other (docs/kafka-semantics.md: Segment states)."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from milena.protocol.types import LeaderEpoch, NodeId
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    allowed,
)
from tests.unit.tiered.segments import PARTITION, segment

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState
SEGMENT = segment(1, 10, 20, {0: 10, 2: 15})


def test_the_states_follow_each_other_as_in_kafka() -> None:
    steps = {
        (None, STARTED),
        (STARTED, FINISHED),
        (STARTED, DELETING),
        (FINISHED, DELETING),
        (DELETING, DELETED),
        *((state, state) for state in RemoteLogSegmentState),
    }
    befores = (None, *RemoteLogSegmentState)
    assert {(before, after) for before in befores for after in RemoteLogSegmentState if allowed(before, after)} == steps


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3)])
def test_impossible_offsets_are_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match=f"{start} to {end}"):
        segment(1, start, end, {0: 0})


@pytest.mark.parametrize("starts", [{}, {1: 0, 0: 2}], ids=["none", "falling"])
def test_impossible_epochs_are_refused(starts: dict[int, int]) -> None:
    with pytest.raises(ValueError, match="leader epochs"):
        segment(1, 0, 3, starts)


def test_an_update_changes_what_it_carries_and_nothing_else() -> None:
    update = RemoteLogSegmentUpdate(SEGMENT.segment_id, NodeId(7), 9000, b"where", FINISHED)
    changed = {"broker_id": 7, "event_timestamp_ms": 9000, "custom_metadata": b"where", "state": FINISHED}
    assert SEGMENT.updated(update) == replace(SEGMENT, **changed)  # type: ignore[arg-type]


def test_an_update_of_another_segment_is_refused() -> None:
    other = RemoteLogSegmentId(PARTITION, UUID(int=99))
    with pytest.raises(ValueError, match="is not"):
        SEGMENT.updated(RemoteLogSegmentUpdate(other, NodeId(1), 1, None, FINISHED))


def test_an_epoch_lasts_until_the_next_one_in_the_segment_or_to_its_end() -> None:
    first, second = LeaderEpoch(0), LeaderEpoch(2)
    assert (SEGMENT.epoch_start(first), SEGMENT.epoch_end(first)) == (10, 14)
    assert (SEGMENT.epoch_start(second), SEGMENT.epoch_end(second)) == (15, 20)
    with pytest.raises(KeyError):
        SEGMENT.epoch_end(LeaderEpoch(1))


def test_an_epoch_that_began_before_the_segment_begins_with_it_here() -> None:
    assert segment(1, 10, 20, {0: 3}).epoch_start(LeaderEpoch(0)) == 10
