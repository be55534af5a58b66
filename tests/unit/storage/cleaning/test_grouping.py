"""The grouping of segments that are merged, as in Kafka's ``Cleaner.groupSegmentsBySize``."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from milena.protocol.types import Offset
from milena.storage.cleaning.grouping import grouped
from milena.storage.cleaning.source import SegmentToClean, with_index_sizes
from milena.storage.cleaning.work import work_on
from tests.unit.storage.cleaning.cleaned_logs import KeyedLog

INT_MAX = (1 << 31) - 1


def groups(*segments: tuple[int, int, int, int], size: int = 100, index: int = 100, end: int = 1 << 40) -> list[int]:
    """The number of segments of each group."""
    of = [SegmentToClean(Offset(base), *sizes) for base, *sizes in segments]
    found = grouped(of, segment_bytes=size, index_bytes=index, end=Offset(end))
    assert [segment for group in found for segment in group] == of
    return [len(group) for group in found]


def test_no_segments_make_no_groups() -> None:
    assert groups() == []


def test_segments_that_fit_into_one_are_grouped() -> None:
    assert groups((0, 50, 8, 12), (10, 50, 8, 12), (20, 1, 8, 12), end=30) == [2, 1]


def test_a_segment_that_is_too_large_stays_alone() -> None:
    assert groups((0, 500, 8, 12), (10, 500, 8, 12), end=20) == [1, 1]


def test_the_indexes_of_a_group_are_limited_too() -> None:
    assert groups((0, 1, 60, 12), (10, 1, 40, 12), (20, 1, 1, 12), end=30) == [2, 1]
    assert groups((0, 1, 1, 60), (10, 1, 1, 41), end=20) == [1, 1]


def test_offsets_of_a_group_fit_in_31_bits() -> None:
    assert groups((0, 1, 1, 1), (5, 1, 1, 1), end=INT_MAX + 1) == [2]
    assert groups((0, 1, 1, 1), (5, 1, 1, 1), end=INT_MAX + 2) == [1, 1]
    assert groups((0, 1, 1, 1), (5, 1, 1, 1), (INT_MAX + 1, 1, 1, 1), end=INT_MAX + 5) == [2, 1]
    assert groups((0, 1, 1, 1), (5, 1, 1, 1), (INT_MAX + 2, 1, 1, 1), end=INT_MAX + 5) == [1, 2]


def test_an_empty_segment_joins_a_group_for_any_end_offset() -> None:
    assert groups((0, 1, 1, 1), (5, 0, 0, 0), end=INT_MAX + 100) == [2]


def test_a_group_has_at_most_32_segments() -> None:
    assert groups(*[(base, 1, 1, 1) for base in range(70)], end=70) == [32, 32, 6]
    assert groups(*[(base, 0, 0, 0) for base in range(40)]) == [32, 8]


def test_preparing_a_cleaning_does_not_access_the_disk(tmp_path: Path) -> None:
    """The event loop prepares it in one step, for any number of segments."""
    keyed = KeyedLog.at(tmp_path)
    for number in range(30):
        keyed.write((b"%d" % number, b"value" * 10))
    found = keyed.range()
    for segment in keyed.log.segments:
        segment.close()
    disk = Mock(spec=[])
    keyed.log.context.disk = disk
    work = work_on(keyed.log, found, now=keyed.now, memory=1000, load_factor=0.9, chunk=1 << 20)
    assert len(work.segments) == len(keyed.log.segments) > 4
    sized = with_index_sizes(keyed.folder.disk, work.folder, work.segments[0])
    assert (sized.offset_index_size, sized.time_index_size) > (0, 0)
