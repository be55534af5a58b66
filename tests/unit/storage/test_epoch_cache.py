"""The leader epoch cache (docs/kafka-semantics.md: Leader epoch cache, End offset for a leader epoch)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import LeaderEpochCache


def cache_of(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache((LeaderEpoch(epoch), Offset(start)) for epoch, start in entries)


def test_an_epoch_keeps_its_lowest_start_offset() -> None:
    cache = cache_of((1, 10))
    cache.assign(LeaderEpoch(1), Offset(20))
    assert cache.entries == [(1, 10)]
    assert not cache.dirty
    cache.assign(LeaderEpoch(1), Offset(5))
    assert cache.entries == [(1, 5)]
    assert cache.dirty


@pytest.mark.parametrize(
    ("epoch", "start", "left"),
    [
        (4, 40, [(1, 10), (2, 20), (3, 30), (4, 40)]),
        (4, 30, [(1, 10), (2, 20), (4, 30)]),
        (4, 15, [(1, 10), (4, 15)]),
        (2, 25, [(1, 10), (2, 25)]),
        (0, 5, [(0, 5)]),
    ],
)
def test_a_new_entry_removes_entries_that_contradict_it(epoch: int, start: int, left: list[tuple[int, int]]) -> None:
    cache = cache_of((1, 10), (2, 20), (3, 30))
    cache.assign(LeaderEpoch(epoch), Offset(start))
    assert cache.entries == left
    assert cache.latest == left[-1][0]


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1)])
def test_a_negative_epoch_or_offset_is_refused(epoch: int, start: int) -> None:
    with pytest.raises(ValueError, match="cannot start"):
        cache_of().assign(LeaderEpoch(epoch), Offset(start))


@pytest.mark.parametrize(
    ("requested", "answer"),
    [(-1, None), (-2, (-2, 10)), (0, (0, 10)), (2, (2, 30)), (3, (2, 30)), (4, (4, 50)), (5, (5, 99)), (6, None)],
    ids=["undefined", "negative", "oldest", "known", "between", "before the latest", "latest", "newer than all"],
)
def test_the_end_offset_of_an_epoch_is_the_start_of_the_next(requested: int, answer: tuple[int, int] | None) -> None:
    cache = cache_of((1, 10), (2, 20), (4, 30), (5, 50))
    assert cache.end_offset_for(LeaderEpoch(requested), log_end=Offset(99)) == answer


def test_an_empty_cache_has_no_epochs() -> None:
    assert cache_of().end_offset_for(LeaderEpoch(0), log_end=Offset(10)) is None
    assert cache_of().epoch_for_offset(Offset(0)) is None
    assert cache_of().latest is None


def test_truncation_from_the_start_moves_the_start_of_the_epoch_at_that_offset() -> None:
    cache = cache_of((1, 10), (2, 20), (3, 30))
    cache.truncate_from_start(Offset(25))
    assert cache.entries == [(2, 25), (3, 30)]
    cache.truncate_from_start(Offset(30))
    assert cache.entries == [(3, 30)]
    cache.truncate_from_start(Offset(5))
    assert cache.entries == [(3, 30)]


def test_truncation_from_the_end_removes_the_epochs_that_begin_there() -> None:
    cache = cache_of((1, 10), (2, 20), (3, 30))
    cache.truncate_from_end(Offset(30))
    assert cache.entries == [(1, 10), (2, 20)]
    cache.truncate_from_end(Offset(-1))
    assert cache.latest == 2


def test_the_entries_of_a_range_begin_at_its_first_offset() -> None:
    cache = cache_of((1, 10), (2, 20), (3, 30))
    assert cache.entries_in_range(Offset(15), Offset(30)) == [(1, 15), (2, 20)]
    assert cache.entries_in_range(Offset(-1), Offset(25)) == [(1, 10), (2, 20)]
    assert len(cache.entries) == 3


def test_the_next_entry_of_an_epoch_is_found() -> None:
    cache = cache_of((1, 10), (3, 30))
    assert cache.next_entry(LeaderEpoch(1)) == cache.next_entry(LeaderEpoch(2)) == (3, 30)
    assert cache.next_entry(LeaderEpoch(3)) is None


writers = st.lists(st.integers(0, 5), min_size=1, max_size=40).map(sorted)
"""The leader epoch of each offset."""


@given(writers, st.integers(-2, 7))
def test_the_end_offset_of_an_epoch_is_that_of_its_records(epochs: list[int], requested: int) -> None:
    cache = LeaderEpochCache()
    for offset, epoch in enumerate(epochs):
        cache.assign(LeaderEpoch(epoch), Offset(offset))
    found = cache.end_offset_for(LeaderEpoch(requested), log_end=Offset(len(epochs)))
    if requested == -1 or requested > epochs[-1]:
        assert found is None
        return
    assert found is not None
    not_newer = [epoch for epoch in epochs if epoch <= requested]
    assert found.offset == len(not_newer)
    assert found.epoch == (not_newer[-1] if not_newer else requested)


@given(writers, st.data())
def test_a_truncated_cache_has_the_epochs_of_the_remaining_records(epochs: list[int], data: st.DataObject) -> None:
    cache = LeaderEpochCache()
    for offset, epoch in enumerate(epochs):
        cache.assign(LeaderEpoch(epoch), Offset(offset))
    start = data.draw(st.integers(0, len(epochs)))
    end = data.draw(st.integers(start, len(epochs)))
    cache.truncate_from_end(Offset(end))
    cache.truncate_from_start(Offset(start))
    assert [cache.epoch_for_offset(Offset(offset)) for offset in range(start, end)] == epochs[start:end]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 30)), max_size=20))
def test_epochs_and_start_offsets_of_a_cache_increase(assignments: list[tuple[int, int]]) -> None:
    cache = LeaderEpochCache()
    for epoch, start in assignments:
        cache.assign(LeaderEpoch(epoch), Offset(start))
        entries = cache.entries
        assert all(one.epoch < two.epoch and one.start < two.start for one, two in pairwise(entries))
        assert cache.latest == epoch
