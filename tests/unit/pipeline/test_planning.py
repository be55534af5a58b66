"""Ranges of segments are split and packed into tasks of about equal size, so that each offset is read once in order."""

from __future__ import annotations

import pickle
from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from milena.pipeline.planning import Aborted, Gap, Stretch, cuts_by_index, cuts_by_offset, divided, packed, served
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.segment_metadata import RemoteLogSegmentId, RemoteLogSegmentState
from tests.unit.tiered.segments import PARTITION, offsets, segment

EPOCHS = [EpochEntry(LeaderEpoch(0), Offset(0))]
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def stretch(first: int, last: int, size: int) -> Stretch:
    return Stretch(PARTITION, first, last, size, replace(segment(1, first, last, {0: 0}), size=size))


@given(
    sizes=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 5000)), max_size=20),
    target=st.integers(1, 2000),
)
def test_each_offset_is_in_one_task_and_tasks_are_in_order(sizes: list[tuple[int, int]], target: int) -> None:
    every, at = [], 0
    for count, size in sizes:
        every.append(stretch(at, at + count - 1, size))
        at += count
    tasks = packed(every, target, cuts_by_offset)
    parts = [one for task in tasks for one in task]
    assert [offset for one in parts for offset in range(one.first, one.last + 1)] == list(range(at))
    for task in tasks:
        assert len(task) == 1 or sum(one.size for one in task) <= target


@given(
    sizes=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 5000)), min_size=1, max_size=20),
    most=st.integers(1, 60),
    least=st.integers(1, 80),
)
def test_tasks_have_at_most_so_many_offsets_and_are_at_least_so_many(
    sizes: list[tuple[int, int]], most: int, least: int
) -> None:
    every, at = [], 0
    for count, size in sizes:
        every.append(stretch(at, at + count - 1, size))
        at += count
    tasks = packed(every, 1 << 40, cuts_by_offset, most)
    found = divided(tasks, least)
    parts = [one for task in found for one in task]
    assert [offset for one in parts for offset in range(one.first, one.last + 1)] == list(range(at))
    assert max(sum(one.last - one.first + 1 for one in task) for task in found) <= most
    assert len(found) == max(len(tasks), min(least, at))


def test_the_largest_task_is_divided_first() -> None:
    tasks = [(stretch(0, 9, 100),), (stretch(10, 19, 10), stretch(20, 29, 900), stretch(30, 39, 5))]
    divisions = divided(tasks, 4)
    assert [[(one.first, one.last) for one in task] for task in divisions] == [
        [(0, 9)], [(10, 19)], [(20, 29)], [(30, 39)],
    ]  # fmt: skip


@given(
    gaps=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 300)), min_size=1, max_size=40),
    target=st.integers(1, 2000),
    bounds=st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
)
def test_splits_by_index_are_at_batch_boundaries_within_the_range(
    gaps: list[tuple[int, int]], target: int, bounds: tuple[int, int]
) -> None:
    entries, offset, position = [], 0, 0
    for records, size in gaps:
        offset, position = offset + records, position + size
        entries.append((offset, position))
    whole = stretch(0, offset + 5, position + 100)
    first, last = sorted(min(bound, whole.last) for bound in bounds)
    parts = cuts_by_index(whole.part(first, last, whole.size), target, entries)
    firsts = [at for at, _ in parts]
    assert firsts[0] == first and firsts == sorted(set(firsts)) and firsts[-1] <= last
    assert {at - 1 for at in firsts[1:]} <= {offset for offset, _ in entries}
    assert all(size >= 1 for _, size in parts)


def test_a_part_has_the_aborted_transactions_that_overlap_it() -> None:
    aborted = (Aborted(1, 0, 9), Aborted(2, 5, 25), Aborted(3, 30, 40))
    whole = replace(stretch(0, 99, 1000), aborted=aborted)
    assert whole.part(10, 29, 1).aborted == (aborted[1],)


def test_a_pickled_range_has_all_its_fields() -> None:
    """Tasks get only the pickled range."""
    odd = replace(
        segment(1, 0, 99, {0: 0, 3: 50}, state=_FINISHED, txn_index_empty=False),
        custom_metadata=b"at",
        leader_epoch=LeaderEpoch(7),
        cleaned=offsets({1: None, 3: 9}),
        replaces=(UUID(int=4),),
        copied=True,
        at_risk=True,
    )
    every = [
        stretch(0, 99, 1000),
        replace(stretch(5, 9, 10), segment=odd, aborted=(Aborted(1, 0, 9),)),
        Stretch(PARTITION, 100, 110, 9, committed=True),
    ]
    for task in (every[:1], every):
        assert pickle.loads(pickle.dumps(tuple(task))) == tuple(task)


def test_offsets_without_a_source_are_a_gap() -> None:
    cache = RemoteLogMetadataCache.restored(
        [segment(1, 0, 9, {0: 0}, state=_FINISHED), segment(2, 20, 29, {0: 0}, state=_FINISHED)], {}
    )
    found = list(served(PARTITION, cache, EPOCHS, 100, 5, 40))
    assert [(type(one).__name__, one.first, one.last) for one in found] == [
        ("Stretch", 5, 9),
        ("Gap", 10, 19),
        ("Stretch", 20, 29),
        ("Gap", 30, 39),
    ]
    assert isinstance(found[1], Gap)


def test_the_work_to_plan_many_segments_is_linear() -> None:
    """The plan visits each of 20,000 segments a bounded number of times."""
    many = []
    for number in range(20_000):
        one = segment(number + 1, number * 10, number * 10 + 9, {0: 0}, state=_FINISHED)
        many.append(replace(one, segment_id=RemoteLogSegmentId(PARTITION, UUID(int=number + 1)), size=1000))
    cache = RemoteLogMetadataCache.restored(many, {})
    tasks = packed(
        (one for one in served(PARTITION, cache, EPOCHS, 200_000, 0, 200_000) if isinstance(one, Stretch)),
        10_000,
        cuts_by_offset,
    )
    assert len(tasks) == 2000
