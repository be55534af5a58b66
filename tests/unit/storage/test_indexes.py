"""The sparse indexes of a segment, compared with linear searches in lists."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.types import Offset, ProducerId
from milena.runtime.files import RealDisk
from milena.storage.files.handle_cache import HandleCache
from milena.storage.files.index_file import CorruptIndex
from milena.storage.files.offset_index import OffsetIndex
from milena.storage.files.time_index import TimedOffset, TimeIndex
from milena.storage.files.txn_index import (
    AbortedTxn,
    append_aborted,
    overlapping,
    read_aborted,
    read_last_aborted,
    read_overlapping,
    truncate_aborted,
)

BASE = 1000


@contextmanager
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as path:
        yield path


def offset_index(path: str, *, exists: bool = False) -> OffsetIndex:
    return OffsetIndex(RealDisk(), HandleCache(2), f"{path}/i.index", BASE, exists=exists)


def time_index(path: str, *, exists: bool = False) -> TimeIndex:
    return TimeIndex(RealDisk(), HandleCache(2), f"{path}/i.timeindex", BASE, exists=exists)


entries = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 500)), max_size=60)
"""Differences of consecutive entries: in offset, and in position or time."""


@given(entries, st.data())
def test_the_lookup_of_an_offset_returns_a_position_at_or_before_its_batch(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    with folder() as path:
        index = offset_index(path)
        known: list[tuple[int, int]] = []
        for offset_step, position_step in steps:
            offset, position = known[-1] if known else (BASE - 1, -1)
            known.append((offset + offset_step, position + position_step))
            index.add(*known[-1])
            if data.draw(st.integers(0, 9)) == 0:
                index.write()
        target = data.draw(st.integers(BASE, BASE + 3000))
        assert index.lookup(target) == max((position for offset, position in known if offset <= target), default=0)
        bound = data.draw(st.integers(0, 30_000))
        later = [offset for offset, position in known if position >= bound]
        assert index.first_after_position(bound) == (min(later) if later else None)
        index.write()
        assert [index[number] for number in range(len(index))] == [(offset - BASE, place) for offset, place in known]
        again = offset_index(path, exists=True)
        assert again.lookup(target) == index.lookup(target)
        cut = data.draw(st.integers(BASE, BASE + 3000))
        again.truncate_to(cut)
        left = [entry for entry in known if entry[0] < cut]
        assert len(again) == len(left)
        assert again.lookup(target) == max((position for offset, position in left if offset <= target), default=0)


@given(entries, st.data())
def test_the_time_index_finds_the_last_offset_with_an_earlier_or_equal_timestamp(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    with folder() as path:
        index = time_index(path)
        known: list[tuple[int, int]] = []
        for offset_step, time_step in steps:
            timestamp, offset = known[-1] if known else (0, BASE)
            known.append((timestamp + time_step, offset + offset_step))
            index.add(TimedOffset(*known[-1]))
            index.add(TimedOffset(timestamp, offset + offset_step))
        target = data.draw(st.integers(0, 30_000))
        assert index.lookup(target) == max((offset for timestamp, offset in known if timestamp <= target), default=BASE)
        assert index.last == (known[-1] if known else (-1, BASE))
        cut = data.draw(st.integers(BASE, BASE + 3000))
        index.truncate_to(cut)
        assert len(index) == sum(offset < cut for _, offset in known)


def test_the_number_of_open_index_maps_is_bounded(tmp_path: object) -> None:
    maps = HandleCache(2)
    indexes = []
    for number in range(5):
        index = OffsetIndex(RealDisk(), maps, f"{tmp_path}/{number}.index", 0, exists=False)
        index.add(7, number)
        index.write()
        indexes.append(index)
    for _ in range(2):
        assert [index.lookup(7) for index in indexes] == [0, 1, 2, 3, 4]
    assert len(maps) == 2
    assert [index._map is not None for index in indexes] == [False, False, False, True, True]


def test_an_index_whose_size_is_no_multiple_of_the_entry_size_is_corrupt(tmp_path: object) -> None:
    with open(f"{tmp_path}/i.index", "wb") as file:
        file.write(bytes(9))
    with pytest.raises(CorruptIndex, match="9 bytes"):
        offset_index(str(tmp_path), exists=True)


@pytest.mark.parametrize("content", [b"\xff" * 8, bytes(4) + b"\x00\x00\x10\x00", bytes(3) + b"\x05" + bytes(12)])
def test_an_index_with_impossible_entries_is_corrupt(tmp_path: object, content: bytes) -> None:
    with open(f"{tmp_path}/i.index", "wb") as file:
        file.write(content)
    with pytest.raises(CorruptIndex):
        offset_index(str(tmp_path), exists=True).check(4096)


def aborted(producer: int, first: int, last: int, stable: int) -> AbortedTxn:
    return AbortedTxn(ProducerId(producer), Offset(first), Offset(last), Offset(stable))


def test_aborted_transactions_are_stored_in_the_transaction_index(tmp_path: object) -> None:
    disk, path = RealDisk(), f"{tmp_path}/0.txnindex"
    entries = [aborted(1, 0, 5, 3), aborted(2, 3, 9, 10), aborted(1, 12, 15, 16)]
    assert read_aborted(disk, path) == []
    for entry in entries:
        append_aborted(disk, path, entry)
    assert disk.size(path) == 3 * 34
    assert read_aborted(disk, path) == entries
    truncate_aborted(disk, path, Offset(9))
    assert read_aborted(disk, path) == entries[:1]


def test_only_aborted_transactions_that_overlap_the_range_are_returned() -> None:
    entries = [aborted(1, 0, 5, 3), aborted(2, 3, 9, 10), aborted(1, 12, 15, 16)]
    assert overlapping(entries, Offset(6), Offset(12)) == ([entries[1]], True)
    assert overlapping(entries, Offset(0), Offset(100)) == (entries, False)
    assert overlapping(entries, Offset(0), Offset(2)) == ([entries[0]], True)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 60), st.integers(1, 9)), max_size=300), st.data())
def test_a_search_in_the_file_finds_what_a_search_in_all_entries_finds(
    steps: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Also if the index is longer than a piece."""
    known: list[AbortedTxn] = []
    for step, length, stable in steps:
        last = (known[-1].last_offset if known else 0) + step
        at_least = known[-1].last_stable_offset if known else 0
        first = max(last - length, 0) if length else last
        known.append(aborted(1, first, last, max(at_least, min(last + 1, first + stable))))
    with folder() as path:
        disk, name = RealDisk(), f"{path}/i.txnindex"
        assert read_last_aborted(disk, name) == -1
        for entry in known:
            append_aborted(disk, name, entry)
        start = data.draw(st.integers(0, 3000))
        upper = start + data.draw(st.integers(1, 500))
        found = read_overlapping(disk, name, Offset(start), Offset(upper)) if known else ([], False)
        assert read_last_aborted(disk, name) == (known[-1].last_offset if known else -1)
    expected, complete = overlapping(known, Offset(start), Offset(upper))
    assert found[0] == expected
    assert complete or not found[1]
