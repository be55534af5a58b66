"""The metadata cache at its edges: repeated records, other partitions, overlapping copies, replaced segments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache, ServedSegment
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tests.unit.tiered.segments import PARTITION, copied, epochs, offsets, segment, update

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState
LOG_END = Offset(1000)


def test_a_copy_of_offsets_that_were_copied_before_is_counted_once() -> None:
    cache = copied(segment(1, 0, 9, {0: 0}), segment(2, 10, 19, {0: 10}))
    assert cache.copied_again == 0
    again = segment(3, 5, 9, {0: 5})
    assert cache.apply(again)
    assert cache.copied_again == 0
    for _ in range(2):
        assert cache.apply(replace(again, state=FINISHED))
        assert cache.copied_again == 1


def test_a_copy_that_begins_at_the_highest_copied_offset_is_a_copy_of_that_record() -> None:
    assert copied(segment(1, 0, 9, {0: 0}), segment(2, 9, 12, {0: 9})).copied_again == 1


def test_an_update_of_a_segment_in_another_partition_changes_nothing() -> None:
    one = segment(1, 0, 9, {0: 0})
    cache = copied(one)
    other = RemoteLogSegmentId(TopicIdPartition(PARTITION.topic_id, PARTITION.topic, 1), one.id)
    assert not cache.apply(replace(update(one, DELETING), segment_id=other))
    assert cache.segments()[0].state is FINISHED


def test_a_withdrawal_makes_a_segment_readable_and_nothing_else() -> None:
    one = segment(1, 0, 9, {0: 0})
    cache = copied(one)
    assert cache.apply(update(one, DELETING))
    for state in (STARTED, DELETING, DELETED):
        assert not cache.apply(replace(update(one, state), republishes=True))
    assert cache.apply(replace(update(one, FINISHED), republishes=True))
    assert [found.id for found in cache.at_risk()] == [one.id]
    assert cache.apply(update(one, DELETING))
    assert cache.at_risk() == []


def test_a_cleaned_segment_whose_copy_was_not_finished_has_no_effect() -> None:
    replaced = segment(1, 0, 9, {0: 0})
    cache = copied(replaced)
    unfinished = replace(segment(2, 0, 9, {0: 0}), cleaned=offsets({0: 10}), replaces=(replaced.id,))
    assert cache.apply(unfinished)
    assert cache.apply(update(unfinished, DELETING))
    assert not cache.cleanings
    assert [cache.serves(one) for one in cache.segments()] == [True, False]


def test_a_segment_whose_last_record_has_the_time_is_found_by_it() -> None:
    cache = copied(segment(1, 0, 9, {0: 0}, max_timestamp_ms=1000), segment(2, 10, 19, {0: 10}, max_timestamp_ms=2000))
    every = cache.with_timestamp(1000, Offset(0), leader_epochs=epochs({0: 0}), log_end=LOG_END)
    assert [one.segment.id.int for one in every] == [1, 2]


def test_the_end_is_after_all_listed_segments() -> None:
    assert RemoteLogMetadataCache().end() == 0
    assert copied(segment(1, 0, 9, {0: 0}), segment(2, 3, 5, {1: 3})).end() == 10


def test_a_segment_that_a_cleaning_replaced_neither_counts_nor_serves() -> None:
    replaced, other = segment(1, 0, 9, {0: 0}), segment(2, 10, 19, {0: 10})
    cleaned = replace(segment(3, 0, 9, {0: 0}), cleaned=offsets({0: 10}), replaces=(replaced.id,))
    cache = copied(replaced, other, cleaned)
    assert [cache.serves(one) for one in cache.segments()] == [False, True, True]
    assert [cache.counts(one) for one in cache.segments()] == [False, True, True]


def drawn(served: Iterable[ServedSegment]) -> list[tuple[int, int, int]]:
    return [(one.segment.id.int, one.first, one.last) for one in served]


@pytest.mark.parametrize(("end", "former"), [(4, 15), (9, 10)])
def test_what_a_former_leader_wrote_after_the_end_of_an_epoch_hides_no_segment_of_the_next_epoch(
    end: int, former: int
) -> None:
    """The former leader of epoch 0 wrote more in it than the leader's log has."""
    cache = copied(segment(1, 0, end, {0: 0}), segment(2, former, 19, {0: former}), segment(3, 12, 14, {1: 12}))
    leader = epochs({0: 0, 1: 10, 2: 20})
    expected = [(1, 0, end), (3, 12, 14)]
    assert drawn(cache.served(Offset(0), leader_epochs=leader, log_end=LOG_END)) == expected
    assert drawn(cache.all_served(Offset(0), leader_epochs=leader, log_end=LOG_END)) == expected
    assert cache.segment_for(Offset(15), leader_epochs=leader, log_end=LOG_END) is None
    assert cache.highest_offset_for_epoch(LeaderEpoch(0)) == 19


def test_all_served_segments_are_those_after_all_cleanings() -> None:
    first, second = segment(1, 0, 9, {0: 0}), segment(2, 10, 19, {0: 10})
    cleaned = replace(segment(3, 0, 19, {0: 0}), cleaned=offsets({0: 20}), replaces=(first.id, second.id))
    for listed in ((first, second, cleaned), (cleaned, first, second)):
        found = copied(*listed).all_served(Offset(0), leader_epochs=epochs({0: 0}), log_end=LOG_END)
        assert drawn(found) == [(3, 0, 19)]


def test_a_segment_stays_replaced_when_its_replacement_is_deleted() -> None:
    first = segment(1, 0, 9, {0: 0})
    cleaned = replace(segment(2, 0, 9, {0: 0}), cleaned=offsets({0: 10}), replaces=(first.id,))
    cache = copied(first, cleaned)
    assert cache.apply(update(cleaned, DELETING))
    assert cache.all_served(Offset(0), leader_epochs=epochs({0: 0}), log_end=LOG_END) == []
