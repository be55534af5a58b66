"""What of the tier belongs to a leader's log: the rules of docs/kafka-semantics.md: Segments within the leader
epochs, and which offsets are served."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.types import Offset
from milena.tiered.segments.lineage import (
    epoch_at,
    filtered,
    is_within_leader_epochs,
    servable,
    serving_range,
)
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from tests.unit.tiered.segments import (
    EPOCHS_OF_KIP405_3,
    EPOCHS_OF_KIP405_5,
    KIP405_3,
    KIP405_5,
    epochs,
    segment,
)

Starts = Mapping[int, int]


def within(start: int, end: int, starts: Starts, leader: Starts, log_end: int = 1000) -> bool:
    return is_within_leader_epochs(
        segment(1, start, end, starts), log_end=Offset(log_end), leader_epochs=epochs(leader)
    )


def test_epochs_without_records_are_left_out() -> None:
    every = {0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 5: 60, 6: 60, 7: 70}
    assert filtered(epochs(every)) == [*epochs({k: v for k, v in every.items() if k != 5})]
    assert filtered(epochs({0: 0, 1: 0})) == [*epochs({1: 0})]
    assert filtered(()) == []


LEADER = {1: 10, 2: 20, 4: 40, 5: 50}


@pytest.mark.parametrize(
    ("start", "end", "starts"),
    [(15, 70, {6: 15}), (0, 9, {0: 0}), (5, 8, {0: 5})],
    ids=["newer than all", "older than all", "within an older one"],
)
def test_its_last_epoch_must_lie_between_the_first_and_the_last_of_the_log(
    start: int, end: int, starts: Starts
) -> None:
    assert not within(start, end, starts, LEADER)


def test_an_epoch_that_the_log_does_not_know_puts_it_off_the_lineage() -> None:
    assert not within(20, 45, {2: 20, 3: 30, 4: 40}, LEADER)
    assert not within(20, 45, {3: 20, 4: 40}, LEADER)
    assert not within(20, 39, {3: 20}, LEADER)


def test_its_first_epoch_must_not_begin_before_the_one_of_the_log_unless_that_is_the_first_one() -> None:
    assert not within(19, 25, {2: 19}, LEADER)
    assert within(20, 25, {2: 20}, LEADER)
    assert within(23, 25, {2: 23}, LEADER)
    assert within(3, 15, {1: 3}, LEADER), "the log start has moved into the segment"


def test_epochs_before_those_of_the_log_do_not_count() -> None:
    assert within(0, 15, {0: 0, 1: 10}, LEADER)
    assert within(0, 25, {0: 0, 1: 7, 2: 20}, LEADER)


def test_its_last_epoch_must_not_reach_further_than_in_the_log() -> None:
    assert within(20, 39, {2: 20}, LEADER)
    assert not within(20, 40, {2: 20}, LEADER)


def test_the_epochs_within_must_be_as_long_as_in_the_log() -> None:
    assert within(20, 45, {2: 20, 4: 40}, LEADER)
    assert not within(20, 45, {2: 20, 4: 41}, LEADER)
    assert not within(20, 55, {2: 20, 5: 50}, LEADER)


def test_it_must_end_before_the_log() -> None:
    assert within(50, 59, {5: 50}, LEADER, log_end=60)
    assert not within(50, 60, {5: 50}, LEADER, log_end=60)


def test_epochs_of_the_segment_that_have_no_records_do_not_count() -> None:
    assert within(20, 45, {2: 20, 3: 40, 4: 40}, LEADER)


def test_nothing_is_within_a_log_without_epochs() -> None:
    assert not within(0, 1, {0: 0}, {})


def test_the_verdicts_on_the_segments_of_kip405_3_and_kip405_5() -> None:
    def verdicts(segments: tuple[RemoteLogSegmentMetadata, ...], leader: object, log_end: int) -> list[bool]:
        return [
            is_within_leader_epochs(one, log_end=Offset(log_end), leader_epochs=leader)  # type: ignore[arg-type]
            for one in segments
        ]

    assert verdicts(KIP405_3, EPOCHS_OF_KIP405_3, 3) == [False, True]
    assert verdicts(KIP405_5, EPOCHS_OF_KIP405_5, 7) == [True, False, True]


def test_a_segment_off_the_lineage_serves_the_offsets_that_it_shares_with_the_log() -> None:
    of_3 = {"log_end": Offset(3), "leader_epochs": EPOCHS_OF_KIP405_3}
    assert [servable(one, **of_3) for one in KIP405_3] == [[(0, 0)], [(1, 1)]]  # type: ignore[arg-type]
    of_5 = {"log_end": Offset(7), "leader_epochs": EPOCHS_OF_KIP405_5}
    assert [servable(one, **of_5) for one in KIP405_5] == [[(0, 3)], [(0, 1)], [(4, 5)]]  # type: ignore[arg-type]


def test_a_range_is_cut_where_the_epoch_ends_in_the_log_and_goes_on_behind_what_is_not_shared() -> None:
    one = segment(1, 0, 9, {0: 0, 1: 4, 2: 6})
    leader = epochs({0: 0, 2: 3})
    assert servable(one, log_end=Offset(8), leader_epochs=leader) == [(0, 2), (6, 7)]
    assert serving_range(one, Offset(1), log_end=Offset(8), leader_epochs=leader) == (0, 2)
    assert serving_range(one, Offset(4), log_end=Offset(8), leader_epochs=leader) is None
    assert serving_range(one, Offset(7), log_end=Offset(8), leader_epochs=leader) == (6, 7)


def test_a_segment_from_the_log_end_on_is_not_served() -> None:
    one = segment(1, 5, 9, {1: 5})
    assert servable(one, log_end=Offset(5), leader_epochs=epochs({1: 5})) == []
    assert servable(one, log_end=Offset(6), leader_epochs=epochs({1: 5})) == [(5, 5)]


def test_the_epoch_of_an_offset() -> None:
    leader = epochs({1: 10, 2: 20})
    assert [epoch_at(Offset(offset), leader) for offset in (9, 10, 19, 20, 99)] == [None, 0, 0, 1, 1]


# -- dumb oracles


@st.composite
def lineages(draw: st.DrawFn, most: int = 5, *, distinct: bool) -> dict[int, int]:
    numbers = sorted(draw(st.sets(st.integers(0, 6), min_size=1, max_size=most)))
    offsets = st.lists(
        st.integers(0, 12), min_size=len(numbers), max_size=len(numbers), unique_by=(lambda x: x) if distinct else None
    )
    return dict(zip(numbers, sorted(draw(offsets)), strict=True))


@st.composite
def drawn_segments(draw: st.DrawFn) -> tuple[int, int, dict[int, int]]:
    starts = draw(lineages(distinct=False))
    start = draw(st.integers(0, min(starts.values()))) if draw(st.booleans()) else min(starts.values())
    return start, max(*starts.values(), start) + draw(st.integers(0, 4)), starts


def a6(end: int, starts: Starts, leader: Starts, log_end: int) -> bool:
    """The rules as they are written, over dictionaries."""
    own = {
        e: o
        for e, o in starts.items()
        if not any(n == min(m for m in starts if m > e) and starts[n] == o for n in starts if n > e)
    }
    last = max(own)
    if last < min(leader) or last > max(leader):
        return False
    at_least = [epoch for epoch in own if epoch >= min(leader)]
    if not at_least:
        return False
    first = min(at_least)
    for epoch in sorted(at_least):
        higher = min(((e, o) for e, o in leader.items() if e > epoch), default=None)
        if epoch not in leader:
            return False
        if epoch == first and min(leader) < epoch and own[epoch] < leader[epoch]:
            return False
        if epoch == last and higher is not None and end > higher[1] - 1:
            return False
        if epoch != last and higher != min((e, o) for e, o in own.items() if e > epoch):
            return False
    return end < log_end


@given(drawn_segments(), lineages(distinct=True), st.integers(0, 18))
def test_the_verdict_is_that_of_the_written_rules(
    drawn: tuple[int, int, dict[int, int]], leader: dict[int, int], log_end: int
) -> None:
    start, end, starts = drawn
    assert within(start, end, starts, leader, log_end) == a6(end, starts, leader, log_end)


def epoch_by_offset(starts: Starts, first: int, last: int) -> dict[int, int]:
    """Offset to the epoch that holds it, by looking at each."""
    held = {}
    for offset in range(first, last + 1):
        begun = [epoch for epoch, start in starts.items() if start <= offset]
        if begun:
            held[offset] = max(begun)
    return held


@given(drawn_segments(), lineages(distinct=True), st.integers(0, 6))
def test_offsets_that_both_have_in_the_same_epoch_are_served(
    drawn: tuple[int, int, dict[int, int]], leader: dict[int, int], more: int
) -> None:
    start, end, starts = drawn
    log_end = max(leader.values()) + more
    own, log = epoch_by_offset(starts, start, end), epoch_by_offset(leader, 0, log_end - 1)
    shared = {offset for offset, epoch in own.items() if log.get(offset) == epoch}
    runs = servable(segment(1, start, end, starts), log_end=Offset(log_end), leader_epochs=epochs(leader))
    assert {offset for first, last in runs for offset in range(first, last + 1)} == shared
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(runs))


@given(drawn_segments(), lineages(distinct=True), st.integers(1, 6))
def test_a_segment_on_the_lineage_is_served_from_the_log_start_to_its_end(
    drawn: tuple[int, int, dict[int, int]], leader: dict[int, int], more: int
) -> None:
    start, end, starts = drawn
    log_end = max(leader.values()) + more
    if within(start, end, starts, leader, log_end) and end >= min(leader.values()):
        one = segment(1, start, end, starts)
        assert serving_range(one, Offset(end), log_end=Offset(log_end), leader_epochs=epochs(leader)) is not None
