"""Which cleaned segments count, whatever the order in which they become known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.types import LeaderEpoch
from milena.tiered.segments import cleaner_offsets
from milena.tiered.segments.cleaner_offsets import CleanerOffsets, contradicts, resolved
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tests.unit.tiered.segments import offsets, segment

FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def cleaned(
    number: int, entries: dict[int, int | None], *sources: RemoteLogSegmentMetadata
) -> RemoteLogSegmentMetadata:
    plain = segment(number, 0, 199, {0: 0}, state=FINISHED)
    return replace(plain, cleaned=offsets(entries), replaces=tuple(source.id for source in sources))


SEG_0 = cleaned(10, {0: 100})
SEG_1 = cleaned(11, {0: 123})
SEG_2 = cleaned(12, {0: 100, 1: 155})


@pytest.mark.parametrize("order", list(permutations([SEG_0, SEG_1, SEG_2])))
def test_the_table_of_the_document(order: Sequence[RemoteLogSegmentMetadata]) -> None:
    cleanings = Cleanings()
    for one in order:
        cleanings.finished(one)
    assert [cleanings.count(one) for one in (SEG_0, SEG_1, SEG_2)] == [True, False, True]


def test_before_the_later_map_is_known_the_stale_one_counts() -> None:
    cleanings = Cleanings()
    cleanings.finished(SEG_1)
    assert cleanings.count(SEG_1)


def test_a_segment_that_was_never_cleaned_contradicts_nothing() -> None:
    cleanings = Cleanings()
    assert not cleanings
    cleanings.finished(segment(1, 0, 9, {0: 0}, state=FINISHED))
    assert not cleanings


def test_a_deleted_segment_keeps_its_say() -> None:
    cleanings = Cleanings()
    cleanings.finished(SEG_2)
    cleanings.removed(SEG_2)
    cleanings.finished(SEG_1)
    assert not cleanings.count(SEG_1)
    assert not Cleanings(cleanings.deleted).count(SEG_1)


def test_of_a_leaders_deleted_maps_one_keeps_its_say_as_long_as_any_would() -> None:
    """The later leader knows of the first one alone, and of epoch 0 nothing."""
    cleanings = Cleanings()
    former = [cleaned(1, {0: 100, 1: 120}), cleaned(2, {0: 100, 1: 155})]
    for one in former:
        cleanings.finished(one)
    for one in former:
        cleanings.removed(one)
    cleanings.finished(cleaned(3, {1: 130, 2: 200}))
    cleanings.finished(SEG_1)
    assert not cleanings.count(SEG_1)


def test_a_replaced_segment_does_not_come_back_when_its_replacement_is_deleted() -> None:
    source = segment(1, 0, 199, {0: 0}, state=FINISHED)
    first, second = cleaned(2, {0: 100}, source), cleaned(3, {0: 50})
    cleanings = Cleanings()
    for one in (first, second):
        cleanings.finished(one)
    for one in (first, second):
        cleanings.removed(one)
    assert not cleanings.count(source)
    again = Cleanings(cleanings.deleted, cleanings.replaced.items())
    assert not again.count(source)


def test_a_rejected_replacement_replaces_nothing() -> None:
    source = segment(1, 0, 199, {0: 0}, state=FINISHED)
    stale = cleaned(11, {0: 123}, source)
    cleanings = Cleanings()
    cleanings.finished(stale)
    assert not cleanings.count(source)
    cleanings.finished(SEG_2)
    assert cleanings.count(source) and not cleanings.count(stale)


def test_deleted_segments_leave_their_maps() -> None:
    source = segment(1, 0, 99, {0: 0}, state=FINISHED)
    left = Cleanings.left_by([cleaned(2, {0: 100}, source), source])
    assert list(left.deleted) == list(left.maps) == [offsets({0: 100})]
    assert not left.replaced


def test_an_exclusion_names_the_furthest_maps() -> None:
    source = segment(1, 0, 99, {0: 0}, state=FINISHED)
    stale = cleaned(2, {0: 123})
    cleanings = Cleanings.of([stale, cleaned(3, {0: 100, 1: 155}, source), cleaned(4, {0: 100, 1: 199}, source)])
    assert cleanings.exclusion(stale) == (offsets({0: 100, 1: 199}), None)
    assert cleanings.exclusion(source) == (None, offsets({0: 100, 1: 199}))


def test_a_rejected_map_rejects_none() -> None:
    """The leader of epoch 2 has seen what that of epoch 0 did, and not what that of epoch 1 did, which had not."""
    first, second, third = cleaned(1, {0: 123}), cleaned(2, {0: 100, 1: 155}), cleaned(3, {0: 123, 2: 300})
    cleanings = Cleanings()
    for one in (first, second, third):
        cleanings.finished(one)
    assert [cleanings.count(one) for one in (first, second, third)] == [True, False, True]


def test_an_equal_offset_is_not_a_contradiction_if_the_maps_differ_elsewhere() -> None:
    """The later leader has pruned LE-0, or knows a later offset of it."""
    earlier = offsets({0: 100, 1: 155})
    for later in (offsets({1: 155, 2: 160}), offsets({0: 120, 1: 155, 2: 160})):
        assert not contradicts(later, earlier)
        assert contradicts(later, offsets({0: 100, 1: 156}))


def test_what_a_later_leader_has_pruned_is_not_contradicted() -> None:
    cleanings = Cleanings()
    first, second = cleaned(1, {0: 123}), cleaned(2, {1: 155})
    cleanings.finished(first)
    cleanings.finished(second)
    assert cleanings.count(first)


@pytest.mark.parametrize(
    ("epoch", "first", "expected"),
    [
        (1, 0, {0: 100, 1: None}),
        (2, 0, {0: 100, 1: 155, 2: None}),
        (2, 1, {1: 155, 2: None}),
        (3, 2, {3: None}),
    ],
)
def test_a_leader_begins_with_the_map_of_its_predecessors(
    epoch: int, first: int, expected: dict[int, int | None]
) -> None:
    known = [offsets({0: 100}), offsets({0: 90})] + [offsets({0: 100, 1: 155})] * (epoch > 1)
    assert resolved(known, LeaderEpoch(epoch), first=LeaderEpoch(first)) == offsets(expected)


def test_a_leader_continues_its_own_map() -> None:
    assert resolved([offsets({0: 100, 1: 155})], LeaderEpoch(1), first=LeaderEpoch(0)) == offsets({0: 100, 1: 155})


def test_maps_of_leaders_that_continue_each_other_are_judged_by_the_last_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each change of the tier would compare every map with every other, entry by entry."""
    compared: list[CleanerOffsets] = []

    def comparing(later: CleanerOffsets, earlier: CleanerOffsets) -> bool:
        compared.append(earlier)
        return contradicts(later, earlier)

    monkeypatch.setattr(cleaner_offsets, "contradicts", comparing)
    leaders = 40
    every = [
        cleaned(number, {epoch: 100 + epoch for epoch in range(first, number)})
        for first in (0, leaders // 2)
        for number in range(first + 1, leaders)
    ]
    cleanings = Cleanings()
    for one in every:
        cleanings.finished(one)
    assert all(cleanings.count(one) for one in every)
    assert len(compared) <= 2 * len(every)


# -- against an oracle that knows the whole history


@dataclass(frozen=True)
class History:
    """Segments that were finished, and which of them were deleted later."""

    segments: list[RemoteLogSegmentMetadata]
    deleted: list[int]


MAPS = st.dictionaries(st.integers(0, 4), st.none() | st.integers(1, 4), max_size=4).map(
    lambda entries: dict(sorted(entries.items()))
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    segments: list[RemoteLogSegmentMetadata] = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        entries = draw(MAPS)
        sources = draw(st.lists(st.sampled_from(segments), max_size=2, unique=True)) if segments and entries else []
        segments.append(cleaned(number, entries, *sources))
    return History(segments, draw(st.lists(st.integers(0, len(segments) - 1), max_size=4, unique=True)))


def dumb_count(history: History, number: int) -> bool:
    """By the rules as they are written, over everything that ever was."""
    ever = [one.cleaned for one in history.segments if one.cleaned]

    def is_accepted(offsets: CleanerOffsets) -> bool:
        for other in ever:
            if other[-1].epoch <= offsets[-1].epoch or not is_accepted(other):
                continue
            other_offsets = dict(other)
            for epoch, offset in offsets:
                if epoch >= other[0].epoch and (offset or 0) > (other_offsets.get(epoch) or 0):
                    return False
        return True

    one = history.segments[number]
    if one.cleaned and not is_accepted(one.cleaned):
        return False
    return not any(one.id in other.replaces and is_accepted(other.cleaned) for other in history.segments)


@given(histories(), st.randoms(use_true_random=False))
def test_what_counts_is_a_function_of_the_set(history: History, random: Random) -> None:
    """Each segment is finished before it is deleted; else any order will do, and so does a snapshot in between."""
    events = [(number, True) for number in range(len(history.segments))] + [(one, False) for one in history.deleted]
    random.shuffle(events)
    seen: set[int] = set()
    waiting: set[int] = set()
    cleanings = Cleanings()
    for number, arrives in events:
        if arrives:
            seen.add(number)
            cleanings.finished(history.segments[number])
            if number in waiting:
                cleanings.removed(history.segments[number])
        elif number in seen:
            cleanings.removed(history.segments[number])
        else:
            waiting.add(number)
    for number in range(len(history.segments)):
        if number not in history.deleted:
            segment_of_number = history.segments[number]
            assert cleanings.count(segment_of_number) == dumb_count(history, number)
            exclusion = cleanings.exclusion(segment_of_number)
            assert exclusion.counts == dumb_count(history, number)
            rejecting = exclusion.rejected_by
            assert rejecting is None or contradicts(rejecting, segment_of_number.cleaned)
