"""Deletion of old segments (docs/kafka-semantics.md: Local retention without a tier)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import NO_TIMESTAMP
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.storage.logs import START_MS, LogFolder, append, batch_of, values_of

SIZE = 73
"""The size in bytes of a batch with the key ``k`` and the value ``xxxx``."""


def segments(path: Path, count: int, **config: Any) -> tuple[LogFolder, UnifiedLog]:
    """A log of ``count`` segments with one batch each, one second apart, all committed."""
    folder = LogFolder(path, **{"retention_ms": -1, "retention_bytes": -1, **config})
    log = folder.open()
    for number in range(count):
        log.roll()
        assert append(log, b"xxxx", keys=(b"k",), timestamp=START_MS + 1000 * number).size == SIZE
    log.set_high_watermark(log.log_end_offset)
    return folder, log


def test_without_limits_no_segment_is_deleted(tmp_path: Path) -> None:
    folder, log = segments(tmp_path, 5)
    assert log.delete_old_segments(folder.clock.now + (1 << 50)) == 0


@pytest.mark.parametrize(("age", "deleted"), [(1000, 0), (1001, 1), (3000, 2), (3001, 3), (10_000, 5)])
def test_segments_older_than_retention_ms_are_deleted(tmp_path: Path, age: int, deleted: int) -> None:
    _, log = segments(tmp_path, 5, retention_ms=1000)
    assert log.delete_old_segments(START_MS + age) == deleted
    assert log.log_start_offset == deleted
    assert len(log.segments) == max(5 - deleted, 1)


def test_with_retention_ms_0_all_segments_from_before_now_are_deleted(tmp_path: Path) -> None:
    _, log = segments(tmp_path, 3, retention_ms=0)
    assert log.delete_old_segments(START_MS + 1000) == 1
    assert log.delete_old_segments(START_MS + 1001) == 1


def test_an_empty_segment_does_not_prevent_deletion_of_later_segments(tmp_path: Path) -> None:
    """The first batch of a follower may have an offset too high for the first segment, which then stays empty."""
    log = LogFolder(tmp_path, retention_ms=1000).open()
    for base in (1 << 32, 1 << 33):
        log.append_as_follower(batch_of(base_offset=Offset(base), leader_epoch=LeaderEpoch(0)))
    assert (log.segments[0].base_offset, log.segments[0].size) == (0, 0)
    log.set_high_watermark(log.log_end_offset)
    assert log.delete_old_segments(1 << 50) == 3


def test_a_new_segment_is_created_if_all_segments_are_deleted(tmp_path: Path) -> None:
    folder, log = segments(tmp_path, 3, retention_ms=1000)
    log.delete_old_segments(START_MS + 100_000)
    assert [(segment.base_offset, segment.size) for segment in log.segments] == [(3, 0)]
    assert log.delete_old_segments(START_MS + 200_000) == 0
    assert append(log, b"new").first_offset == 3
    log.close()
    assert values_of(folder.open(log_start=3), 3) == [b"new"]


def test_a_segment_without_timestamps_has_the_age_of_its_file(tmp_path: Path) -> None:
    _, log = segments(tmp_path, 1, retention_ms=1000)
    log.roll()
    append(log, timestamp=NO_TIMESTAMP)
    log.set_high_watermark(log.log_end_offset)
    modified = Path(log.segments.active.path(".log")).stat().st_mtime_ns // 1_000_000
    assert log.delete_old_segments(modified + 1000) == 1
    assert log.delete_old_segments(modified + 1001) == 1


@pytest.mark.parametrize(("limit", "deleted"), [(5 * SIZE, 0), (5 * SIZE - 1, 0), (4 * SIZE, 1), (SIZE + 1, 3), (0, 5)])
def test_deletion_by_size_never_leaves_less_than_retention_bytes(tmp_path: Path, limit: int, deleted: int) -> None:
    _, log = segments(tmp_path, 5, retention_bytes=limit)
    assert log.delete_old_segments(START_MS) == deleted
    assert log.size >= min(limit, 5 * SIZE) or limit == 0


def test_segments_above_the_high_watermark_are_not_deleted(tmp_path: Path) -> None:
    _, log = segments(tmp_path, 5, retention_ms=1000)
    log.set_high_watermark(Offset(2))
    assert log.delete_old_segments(START_MS + 100_000) == 2
    assert log.log_start_offset == 2


def test_of_a_compacted_log_only_segments_below_the_log_start_are_deleted(tmp_path: Path) -> None:
    _, log = segments(tmp_path, 5, retention_ms=1000, retention_bytes=0, cleanup_policy=("compact",))
    assert log.delete_old_segments(START_MS + 100_000) == 0
    log.increment_log_start(Offset(3))
    assert log.delete_old_segments(START_MS) == 3


def test_deleted_records_are_unreadable_at_once_and_their_segments_are_deleted_later(tmp_path: Path) -> None:
    _, log = segments(tmp_path, 5)
    assert log.increment_log_start(Offset(3))
    assert not log.increment_log_start(Offset(2))
    assert len(log.segments) == 5
    with pytest.raises(KafkaError) as refused:
        log.read(Offset(2), 100, upper=Offset(5), min_one=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(log, 3) == [b"xxxx"] * 2
    assert log.epochs.entries == [(0, 3)]
    assert log.delete_old_segments(START_MS) == 3


def test_records_above_the_high_watermark_cannot_be_deleted(tmp_path: Path) -> None:
    _, log = segments(tmp_path, 5)
    log.set_high_watermark(Offset(2))
    with pytest.raises(KafkaError) as refused:
        log.increment_log_start(Offset(3))
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_files_are_renamed_first_and_removed_after_the_delay(tmp_path: Path) -> None:
    folder, log = segments(tmp_path, 3, retention_bytes=SIZE, file_delete_delay_ms=500)
    log.delete_old_segments(START_MS)
    marked = [name for name in folder.names() if name.endswith(".deleted")]
    assert [name for name in marked if ".log" in name] == [f"{base:020d}.log.deleted" for base in (0, 1)]
    assert f"{1:020d}.snapshot.deleted" in marked
    assert folder.context.deletions.take_due(START_MS + 499) == []
    assert sorted(folder.context.deletions.take_due(START_MS + 500)) == [f"{folder.path}/{name}" for name in marked]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(-2000, 2000)), min_size=1, max_size=8),
    st.integers(-1, 800),
    st.integers(-1, 3000),
    st.data(),
)
def test_the_longest_prefix_of_deletable_segments_is_deleted(
    sizes: list[tuple[int, int]], retention_bytes: int, retention_ms: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = LogFolder(path, retention_ms=retention_ms, retention_bytes=retention_bytes)
        log = folder.open()
        known = []
        for size, age in sizes:
            log.roll()
            known.append((append(log, b"x" * size, timestamp=START_MS - age).size, age))
        watermark = data.draw(st.integers(0, len(sizes)))
        log.set_high_watermark(Offset(watermark))
        total = sum(size for size, _ in known)
        expected = 0
        if retention_bytes >= 0:
            while expected < watermark and total - known[expected][0] >= retention_bytes:
                total -= known[expected][0]
                expected += 1
        if retention_ms >= 0:
            while expected < watermark and known[expected][1] > retention_ms:
                expected += 1
        assert log.delete_old_segments(START_MS) == expected
        assert log.log_start_offset == expected
        assert values_of(log, expected) == [b"x" * size for size, _ in sizes[expected:]]
