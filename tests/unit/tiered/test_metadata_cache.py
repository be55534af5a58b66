"""The segments of a partition: states, look-ups, arrival in any order (docs/kafka-semantics.md: Segment states, The
metadata topic and what differs)."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import permutations
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.lineage import is_within_leader_epochs, servable
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
)
from tests.unit.tiered.segments import (
    EPOCHS_OF_KIP405_3,
    EPOCHS_OF_KIP405_5,
    KIP405_3,
    KIP405_5,
    copied,
    epochs,
    segment,
    update,
)

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState
LOG_END = Offset(1000)


def numbers(segments: Sequence[RemoteLogSegmentMetadata]) -> list[int]:
    return [one.id.int for one in segments]


def found(cache: RemoteLogMetadataCache, epoch: int, offset: int) -> list[int]:
    return numbers(cache.find(LeaderEpoch(epoch), Offset(offset)))


def served(
    cache: RemoteLogMetadataCache, offset: int, leader_epochs: Sequence[EpochEntry], log_end: int
) -> tuple[int, int, int] | None:
    """Number of the segment that serves an offset, and its first and last offset."""
    one = cache.segment_for(Offset(offset), leader_epochs=leader_epochs, log_end=Offset(log_end))
    return None if one is None else (one.segment.id.int, one.first, one.last)


# -- states


def test_a_segment_is_listed_from_the_start_of_its_copy_and_read_once_that_is_finished() -> None:
    cache = RemoteLogMetadataCache()
    one = segment(1, 10, 20, {0: 10, 2: 15})
    assert cache.apply(one)
    assert (numbers(cache.segments()), found(cache, 0, 12)) == ([1], [])
    assert cache.highest_offset_for_epoch(LeaderEpoch(0)) is None
    assert cache.apply(update(one, FINISHED))
    assert (numbers(cache.segments()), found(cache, 0, 12), found(cache, 2, 15)) == ([1], [1], [1])


def test_a_segment_being_deleted_is_listed_and_not_read_until_it_is_deleted() -> None:
    one = segment(1, 10, 20, {0: 10, 2: 15})
    cache = copied(one)
    assert cache.apply(update(one, DELETING))
    assert (numbers(cache.segments_of_epoch(LeaderEpoch(2))), found(cache, 2, 15)) == ([1], [])
    assert cache.apply(update(one, DELETED))
    assert (cache.segments(), cache.segments_of_epoch(LeaderEpoch(2)), len(cache)) == ([], [], 0)
    assert cache.epochs() == []


def test_the_highest_offset_of_an_epoch_outlives_the_segment() -> None:
    one = segment(1, 10, 20, {0: 10, 2: 15})
    cache = copied(one)
    cache.apply(update(one, DELETING))
    cache.apply(update(one, DELETED))
    assert cache.highest_offsets() == {0: 14, 2: 20}
    assert cache.highest_offset_for_epoch(LeaderEpoch(1)) is None


@pytest.mark.parametrize("states", [(DELETED,), (FINISHED, STARTED), (FINISHED, DELETED), (DELETING, FINISHED)])
def test_what_must_not_follow_changes_nothing(states: tuple[RemoteLogSegmentState, ...]) -> None:
    cache, one = RemoteLogMetadataCache(), segment(1, 10, 20, {0: 10})
    cache.apply(one)
    for state in states[:-1]:
        assert cache.apply(update(one, state))
    assert not cache.apply(update(one, states[-1]))
    known = cache.get(one.id)
    assert known is not None and known.state is (states[-2] if len(states) > 1 else STARTED)


def test_an_update_of_an_unknown_segment_changes_nothing() -> None:
    cache = RemoteLogMetadataCache()
    assert not cache.apply(update(segment(1, 10, 20, {0: 10}), FINISHED))
    assert len(cache) == 0


@pytest.mark.parametrize("state", [FINISHED, DELETING, DELETED])
def test_a_segment_must_begin_with_the_start_of_its_copy(state: RemoteLogSegmentState) -> None:
    assert not RemoteLogMetadataCache().apply(segment(1, 10, 20, {0: 10}, state=state))


def test_each_record_may_come_twice() -> None:
    cache, one = RemoteLogMetadataCache(), segment(1, 10, 20, {0: 10})
    for event in (one, one, update(one, FINISHED), update(one, FINISHED)):
        assert cache.apply(event)
    assert (numbers(cache.segments()), found(cache, 0, 12)) == ([1], [1])
    assert not cache.apply(one), "the copy cannot begin again"
    for event in (update(one, DELETING), update(one, DELETING), update(one, DELETED)):
        assert cache.apply(event)
    assert not cache.apply(update(one, DELETED)) and len(cache) == 0


def test_a_segment_listed_twice_with_other_offsets_is_what_the_later_record_says() -> None:
    cache = RemoteLogMetadataCache()
    cache.apply(segment(1, 10, 20, {0: 10, 1: 15}))
    later = segment(1, 11, 21, {1: 11})
    cache.apply(later)
    cache.apply(update(later, FINISHED))
    assert cache.segments_of_epoch(LeaderEpoch(0)) == []
    assert (found(cache, 1, 11), found(cache, 1, 21), found(cache, 0, 12)) == ([1], [1], [])


# -- look-ups


def test_an_offset_is_found_in_the_epoch_in_which_the_segment_holds_it_and_in_no_other() -> None:
    cache = copied(segment(1, 10, 20, {0: 10, 2: 15}), segment(2, 21, 30, {2: 21}))
    looked_up = {(epoch, offset): found(cache, epoch, offset) for epoch in range(4) for offset in (9, 10, 14, 15, 31)}
    assert {place: one for place, one in looked_up.items() if one} == {(0, 10): [1], (0, 14): [1], (2, 15): [1]}
    assert (found(cache, 2, 20), found(cache, 2, 21), found(cache, 2, 30)) == ([1], [2], [2])


def test_the_next_segment_with_aborted_transactions_is_found_over_gaps_and_epochs() -> None:
    cache = copied(
        segment(1, 0, 9, {0: 0}),
        segment(2, 10, 19, {0: 10}),
        segment(3, 30, 39, {1: 30}, txn_index_empty=False),
        segment(4, 40, 49, {1: 40}, txn_index_empty=False),
        segment(5, 10, 29, {0: 10, 7: 15}, txn_index_empty=False),
    )
    leader = epochs({0: 0, 1: 20})

    def first(offset: int) -> int | None:
        one = cache.next_with_txn_index(Offset(offset), leader_epochs=leader, log_end=LOG_END)
        return None if one is None else one.segment.id.int

    assert [first(offset) for offset in (0, 15, 35, 40, 50)] == [3, 3, 3, 4, None]


def test_segments_are_found_by_the_time_of_their_records() -> None:
    cache = copied(
        segment(1, 0, 9, {0: 0}, max_timestamp_ms=100),
        segment(2, 10, 19, {0: 10}, max_timestamp_ms=300),
        segment(3, 20, 29, {0: 20}, max_timestamp_ms=200),
    )
    leader = epochs({0: 0})
    every = cache.with_timestamp(150, Offset(12), leader_epochs=leader, log_end=LOG_END)
    assert [(one.segment.id.int, one.first, one.last) for one in every] == [(2, 12, 19), (3, 20, 29)]


# -- several lineages


def arrivals(segments: Sequence[RemoteLogSegmentMetadata]) -> Iterator[RemoteLogMetadataCache]:
    """Caches to which the segments were applied in every possible order of their records."""
    for order in set(permutations([one for one in segments for _ in range(2)])):
        cache = RemoteLogMetadataCache()
        for one in order:
            known = cache.get(one.id)
            assert cache.apply(one if known is None else update(one, FINISHED))
        yield cache


def test_of_kip405_3_offset_0_is_read_from_the_segment_off_the_lineage_cut_at_1_in_any_order_of_arrival() -> None:
    reads = [[served(cache, offset, EPOCHS_OF_KIP405_3, 3) for offset in range(4)] for cache in arrivals(KIP405_3)]
    assert len(reads) == 6
    assert all(read == [(1, 0, 0), (2, 1, 1), None, None] for read in reads)


def test_of_kip405_5_uuid_2_is_never_served_in_any_order_of_arrival() -> None:
    reads = [[served(cache, offset, EPOCHS_OF_KIP405_5, 7) for offset in range(7)] for cache in arrivals(KIP405_5)]
    assert len(reads) == 90
    assert all(read == [(1, 0, 3)] * 4 + [(3, 4, 5)] * 2 + [None] for read in reads)


def test_of_kip405_5_all_candidates_are_kept_in_any_order_of_arrival() -> None:
    for cache in arrivals(KIP405_5):
        assert [found(cache, 0, offset) for offset in range(6)] == [[1, 2], [1, 2], [1], [1], [3], []]
        assert [found(cache, 1, offset) for offset in range(5)] == [[], [], [2], [2], []]
        assert found(cache, 2, 5) == [3]
        assert cache.highest_offsets() == {0: 4, 1: 3, 2: 5}
        assert numbers(cache.segments()) == [1, 2, 3]


def test_b_of_kip405_5_would_read_its_own_segment_while_it_leads() -> None:
    cache = copied(*KIP405_5[:2])
    reads = [served(cache, offset, epochs({0: 0, 1: 2}), 5) for offset in range(5)]
    assert reads == [(2, 0, 3)] * 4 + [None]


def test_the_offset_where_an_epoch_began_may_stand_before_the_segment() -> None:
    document = (*KIP405_5[:2], segment(3, 4, 5, {0: 0, 2: 5}))
    for cache in arrivals(document):
        reads = [served(cache, offset, EPOCHS_OF_KIP405_5, 7) for offset in range(7)]
        assert reads == [(1, 0, 3)] * 4 + [(3, 4, 5)] * 2 + [None]


def test_of_two_copies_of_one_segment_the_choice_does_not_depend_on_the_order() -> None:
    twins = (segment(1, 0, 9, {0: 0}), segment(2, 0, 9, {0: 0}), segment(3, 0, 5, {0: 0}))
    assert {served(cache, 3, epochs({0: 0}), 1000) for cache in arrivals(twins)} == {(2, 0, 9)}


def test_segments_that_overlap_leave_no_hole_whichever_is_deleted() -> None:
    """KAFKA-15168: a leader copied 0-9 and 10-29, the next one, that did not know of it, 0-14 and 15-24."""
    every = (
        segment(1, 0, 9, {0: 0}),
        segment(2, 10, 29, {0: 10}),
        segment(3, 0, 14, {0: 0}),
        segment(4, 15, 24, {0: 15}),
    )
    leader = epochs({0: 0})

    def reads(cache: RemoteLogMetadataCache) -> list[tuple[int, int, int]]:
        every = cache.served(Offset(0), leader_epochs=leader, log_end=LOG_END)
        return [(one.segment.id.int, one.first, one.last) for one in every]

    assert reads(copied(*every)) == [(3, 0, 14), (2, 15, 29)]
    for gone, left in ((1, [(3, 0, 14), (2, 15, 29)]), (2, [(3, 0, 14), (4, 15, 24)]), (3, [(1, 0, 9), (2, 10, 29)])):
        cache = copied(*every)
        cache.apply(update(every[gone - 1], DELETING))
        assert reads(cache) == left
        assert cache.highest_offset_for_epoch(LeaderEpoch(0)) == 29


# -- dumb oracles


@st.composite
def histories(draw: st.DrawFn) -> list[RemoteLogSegmentMetadata]:
    """Segments of any lineages, each in some state that it may have come to."""
    segments = []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        own = sorted(draw(st.sets(st.integers(0, 4), min_size=1, max_size=3)))
        start = draw(st.integers(0, 20))
        later = st.lists(st.integers(start, 24), min_size=len(own) - 1, max_size=len(own) - 1)
        starts = [start, *sorted(draw(later))]
        end = max(starts[-1], start) + draw(st.integers(0, 8))
        state = draw(st.sampled_from([FINISHED, FINISHED, FINISHED, STARTED, DELETING, DELETED]))
        segments.append(segment(number, start, end, dict(zip(own, starts, strict=True)), state=state))
    return segments


def steps(one: RemoteLogSegmentMetadata) -> list[RemoteLogSegmentMetadata | RemoteLogSegmentUpdate]:
    begun = segment(one.id.int, one.start_offset, one.end_offset, dict(one.epochs))
    return [begun, *(update(begun, state) for state in RemoteLogSegmentState if 0 < state <= one.state)]


@given(histories(), st.integers(0, 2**32))
def test_the_cache_finds_what_a_list_of_all_segments_finds(segments: list[RemoteLogSegmentMetadata], seed: int) -> None:
    cache, chosen = RemoteLogMetadataCache(), random.Random(seed)
    queues = [steps(one) for one in segments]
    while any(queues):
        assert cache.apply(chosen.choice([queue for queue in queues if queue]).pop(0))
    listed = [one for one in segments if one.state is not DELETED]
    readable = [one for one in listed if one.state is FINISHED]
    assert sorted(numbers(cache.segments())) == numbers(listed)
    for epoch in range(5):
        of_epoch = [one for one in listed if epoch in dict(one.epochs)]
        assert sorted(numbers(cache.segments_of_epoch(LeaderEpoch(epoch)))) == numbers(of_epoch)
        for offset in range(35):
            holding = [
                one
                for one in readable
                if epoch in dict(one.epochs)
                and one.epoch_start(LeaderEpoch(epoch)) <= offset <= one.epoch_end(LeaderEpoch(epoch))
            ]
            assert sorted(found(cache, epoch, offset)) == numbers(holding)


@given(histories(), st.lists(st.integers(0, 24), min_size=1, max_size=4, unique=True), st.integers(0, 10))
def test_every_offset_that_some_segment_may_serve_is_served_once_and_from_the_lineage_where_that_can_be(
    segments: list[RemoteLogSegmentMetadata], starts: list[int], more: int
) -> None:
    cache = RemoteLogMetadataCache()
    for one in segments:
        for event in steps(one):
            cache.apply(event)
    leader = epochs(dict(enumerate(sorted(starts))))
    log_end = Offset(max(starts) + more)
    readable = [one for one in segments if one.state is FINISHED]
    may: dict[int, list[RemoteLogSegmentMetadata]] = {}
    for one in readable:
        for first, last in servable(one, log_end=log_end, leader_epochs=leader):
            for offset in range(first, last + 1):
                may.setdefault(offset, []).append(one)
    reads = list(cache.served(Offset(0), leader_epochs=leader, log_end=log_end))
    offsets = [offset for one in reads for offset in range(one.first, one.last + 1)]
    assert offsets == sorted(may)
    for at in (0, min(starts), max(starts)):
        reads = list(cache.served(Offset(at), leader_epochs=leader, log_end=log_end))
        assert cache.all_served(Offset(at), leader_epochs=leader, log_end=log_end) == reads
    for offset, candidates in may.items():
        chosen = cache.segment_for(Offset(offset), leader_epochs=leader, log_end=log_end)
        assert chosen is not None and chosen.segment.id in {one.id for one in candidates}
        whole = {one.id for one in candidates if is_within_leader_epochs(one, log_end=log_end, leader_epochs=leader)}
        assert not whole or chosen.segment.id in whole


def test_ten_thousand_segments_would_take_less_than_ten_mebibytes() -> None:
    count = 1000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cache = RemoteLogMetadataCache()
        for number in range(count):
            start = number * 1000 + 500
            one = segment(UUID(int=number << 90).int, start, start + 999, {number // 10 + 300: start})
            cache.apply(one)
            cache.apply(update(one, FINISHED))
        assert len(cache) == count
        assert tracemalloc.get_traced_memory()[0] - before < count * (10 << 20) / 10_000
    finally:
        tracemalloc.stop()


def test_a_cache_is_restored_as_it_was() -> None:
    gone = segment(9, 6, 8, {2: 6})
    cache = copied(*KIP405_5, gone)
    cache.apply(update(gone, DELETING))
    cache.apply(update(gone, DELETED))
    cache.apply(segment(10, 6, 8, {2: 6}))
    again = RemoteLogMetadataCache.restored(cache.segments(), cache.highest_offsets())
    assert again.segments() == cache.segments()
    assert again.highest_offsets() == cache.highest_offsets() == {0: 4, 1: 3, 2: 8}
    assert found(again, 0, 0) == [1, 2]
