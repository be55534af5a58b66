"""Transactions whose first records retention or DeleteRecords has deleted while they were open."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.state.producer_state import OpenTransaction
from tests.unit.storage.logs import START_MS, LogFolder, append, marker

LEADER = LeaderEpoch(0)


def end(log: UnifiedLog, *, commit: bool) -> None:
    records = marker((7, 0), commit=commit)
    log.append_as_leader(records, leader_epoch=LEADER, origin=Origin.COORDINATOR)
    log.set_high_watermark(log.log_end_offset)


def opened(folder: LogFolder) -> UnifiedLog:
    """A log with records before, of, and after the begin of a transaction; it starts after the transaction's first
    record."""
    log = folder.open()
    append(log, b"before")
    append(log, b"deleted", producer=(7, 0, 0), transactional=True)
    append(log, b"plain")
    append(log, b"kept", producer=(7, 0, 1), transactional=True)
    log.set_high_watermark(Offset(4))
    assert log.last_stable_offset == 1
    log.increment_log_start(Offset(2))
    return log


def test_the_last_stable_offset_is_not_below_the_log_start(tmp_path: Path) -> None:
    log = opened(LogFolder(tmp_path))
    assert log.last_stable_offset == log.log_start_offset == 2
    assert log.producers.oldest_open == OpenTransaction(7, 1, START_MS)  # type: ignore[arg-type]


@pytest.mark.parametrize("commit", [True, False])
def test_its_marker_ends_it(tmp_path: Path, commit: bool) -> None:
    log = opened(LogFolder(tmp_path))
    end(log, commit=commit)
    assert log.last_stable_offset == log.log_end_offset == 5
    assert [one.first_offset for one in log.aborted_transactions(Offset(2), Offset(5))] == [1] * (not commit)


@pytest.mark.parametrize("clean", [True, False])
def test_it_is_still_open_after_a_restart(tmp_path: Path, clean: bool) -> None:
    folder = LogFolder(tmp_path)
    opened(folder).close()
    again = folder.open(clean=clean, log_start=2)
    again.set_high_watermark(Offset(4))
    assert again.last_stable_offset == 2
    end(again, commit=False)
    assert again.last_stable_offset == 5


def test_a_deleted_segment_does_not_end_it(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path, retention_ms=1_000)
    log = folder.open()
    append(log, b"deleted", producer=(7, 0, 0), transactional=True)
    log.roll()
    folder.clock.now += 5_000
    append(log, b"kept", producer=(7, 0, 1), transactional=True, timestamp=folder.clock.now)
    log.set_high_watermark(Offset(2))
    assert log.delete_old_segments(folder.clock.now) == 1
    assert log.last_stable_offset == log.log_start_offset == 1
    end(log, commit=True)
    assert log.last_stable_offset == 3
