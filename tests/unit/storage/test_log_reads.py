"""What reads of a log return at their limits (``LogReads``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.storage.logs import LogFolder, append, marker


def aborted(log: UnifiedLog, producer: int) -> None:
    """Append a record of a transaction and the marker that aborts it."""
    append(log, b"x", producer=(producer, 0, 0), transactional=True)
    records = marker((producer, 0), commit=False)
    log.append_as_leader(records, leader_epoch=LeaderEpoch(0), origin=Origin.COORDINATOR)


def producers_aborted_in(log: UnifiedLog, start: int, max_bytes: int) -> list[int]:
    end = log.log_end_offset
    piece = log.read(Offset(start), max_bytes, upper=end, min_one=True)
    return [one.producer_id for one in log.aborted_in(piece, Offset(start), end)]


def test_a_transaction_above_the_high_watermark_does_not_hold_the_last_stable_offset(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"a", b"b", b"c")
    append(log, b"x", producer=(7, 0, 0), transactional=True)
    log.set_high_watermark(Offset(2))
    assert log.last_stable_offset == 2


def test_a_read_at_the_log_end_is_empty(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"x")
    piece = log.read(Offset(1), 100, upper=Offset(1), min_one=True)
    assert (piece.file, piece.length) == (None, 0)


def test_a_batch_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    size = append(log, b"x").size
    append(log, b"y")
    assert log.read(Offset(0), size, upper=Offset(2), min_one=False).length == size


def test_an_empty_slice_has_no_file(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"x")
    assert log.read(Offset(0), 10, upper=Offset(1), min_one=False).file is None


def test_an_offset_before_the_first_local_segment_is_out_of_range(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path, remote_storage_enable=True, retention_ms=-1, retention_bytes=-1)
    folder.tiered = True
    log = folder.open()
    log.truncate_fully_and_start_at(Offset(5), log_start=Offset(2))
    append(log, b"x")
    assert (log.log_start_offset, log.local_log_start_offset) == (2, 5)
    with pytest.raises(KafkaError) as refused:
        log.read(Offset(3), 100, upper=Offset(6), min_one=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_aborted_transactions_are_those_of_the_slice(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, index_interval_bytes=0).open()
    for producer in (1, 2, 3):
        aborted(log, producer)
    log.roll()
    aborted(log, 4)
    assert producers_aborted_in(log, 0, 10) == [1]
    assert producers_aborted_in(log, 2, 10) == [2]
    assert producers_aborted_in(log, 0, 1 << 20) == [1, 2, 3]
    assert producers_aborted_in(log, 6, 1 << 20) == [4]


def test_the_end_of_a_leader_epoch_is_the_start_of_the_next(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"a", b"b", epoch=1)
    append(log, b"c", epoch=3)
    assert [log.leader_epoch_end_offset(LeaderEpoch(epoch)) for epoch in (1, 2, 3)] == [(1, 2), (1, 2), (3, 3)]


def test_the_end_of_an_unknown_leader_epoch_is_undefined(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"a", epoch=1)
    assert log.leader_epoch_end_offset(LeaderEpoch(2)) == (None, None)
