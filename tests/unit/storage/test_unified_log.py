"""Appends to a log, reads, rolls, and opening it again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import BatchView, iter_batches
from milena.protocol.types import LeaderEpoch, Offset
from tests.unit.storage.logs import TOPIC_ID, LogFolder, append, batch_of, values_of


def test_a_new_log_is_empty_and_has_its_topic_id(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    log = folder.open()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 0, 0)
    assert folder.names() == ["00000000000000000000.log", "partition.metadata"]
    assert folder.open().topic_id == TOPIC_ID


def test_an_append_assigns_offsets_and_leader_epoch_in_the_given_batch(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"a", b"b")
    data = batch_of(b"c", b"d", b"e")
    info = log.append_as_leader(data, leader_epoch=LeaderEpoch(3))
    assert (info.first_offset, info.last_offset, info.log_append_time) == (2, 4, -1)
    batch = BatchView(data)
    assert (batch.base_offset, batch.leader_epoch) == (2, 3)
    assert batch.is_valid
    assert log.log_end_offset == 5


def test_all_records_are_read_after_a_clean_restart(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    log = folder.open()
    written = [f"{number}".encode() for number in range(50)]
    for value in written:
        append(log, value, epoch=1)
    log.close()
    again = folder.open()
    assert again.log_end_offset == 50
    assert values_of(again) == written
    assert again.epochs.entries == log.epochs.entries == [(1, 0)]
    append(again, b"more")
    assert values_of(again, 49) == [b"49", b"more"]


def test_a_read_begins_with_the_batch_that_has_the_offset(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    piece = log.read_bytes(Offset(1), 1000, upper=Offset(4), min_one=True)
    assert [batch.base_offset for batch in iter_batches(piece)] == [0, 3]


def test_a_read_ends_before_the_upper_bound(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    for _ in range(40):
        append(log, b"x")
    piece = log.read_bytes(Offset(0), 1 << 20, upper=Offset(3), min_one=True)
    assert [batch.base_offset for batch in iter_batches(piece)] == [0, 1, 2]
    assert log.read(Offset(3), 100, upper=Offset(3), min_one=True).length == 0
    assert log.read(Offset(5), 100, upper=Offset(3), min_one=True).length == 0


def test_a_batch_larger_than_the_limit_is_returned_whole_or_not_at_all(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    size = append(log, b"x" * 500).size
    append(log, b"y")
    end = log.log_end_offset
    assert log.read(Offset(0), 10, upper=end, min_one=True).length == size
    assert log.read(Offset(0), 10, upper=end, min_one=False).length == 0
    assert log.read(Offset(0), size + 5, upper=end, min_one=False).length == size + 5


@pytest.mark.parametrize("offset", [-1, 2, 100])
def test_offsets_outside_of_the_log_are_out_of_range(tmp_path: Path, offset: int) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"x")
    with pytest.raises(KafkaError) as refused:
        log.read(Offset(offset), 100, upper=log.log_end_offset, min_one=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_full_segment_is_rolled(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path, segment_bytes=1000, index_interval_bytes=100)
    log = folder.open()
    for number in range(30):
        append(log, b"%03d" % number * 30)
    assert len(log.segments) == 5
    assert all(segment.size <= 1000 for segment in log.segments)
    assert values_of(log) == [b"%03d" % number * 30 for number in range(30)]
    log.close()
    again = folder.open()
    assert [segment.base_offset for segment in again.segments] == [segment.base_offset for segment in log.segments]
    assert values_of(again, 13) == [b"%03d" % number * 30 for number in range(13, 30)]
    bases = [f"{segment.base_offset:020d}" for segment in log.segments]
    assert [name for name in folder.names() if name.endswith(".snapshot")] == [
        f"{base}.snapshot" for base in [*bases[1:], f"{30:020d}"]
    ]


def test_a_segment_is_rolled_when_its_first_record_is_old_enough(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, segment_ms=1000).open()
    append(log, timestamp=5000)
    append(log, timestamp=6000)
    assert len(log.segments) == 1
    append(log, timestamp=6001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_of_a_compacted_log_is_rolled_within_the_maximum_compaction_lag(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, segment_ms=5000, max_compaction_lag_ms=1000, cleanup_policy=("compact",)).open()
    for timestamp in (5000, 6000, 6001):
        log.append_as_leader(batch_of(b"v", keys=[b"k"], timestamp=timestamp), leader_epoch=LeaderEpoch(0))
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.update_config(replace(log.config, cleanup_policy=("delete",)))
    append(log, timestamp=7500)
    assert len(log.segments) == 2


def test_a_segment_is_rolled_when_an_index_is_full(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, segment_index_bytes=24, index_interval_bytes=0).open()
    for number in range(8):
        append(log, timestamp=1000 + number)
    # the time index has room for 24 // 12 entries; the last is reserved for the end of the segment
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6]


def test_a_segment_is_rolled_before_its_relative_offsets_overflow(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log)
    far = batch_of(base_offset=Offset((1 << 31) + 5), leader_epoch=LeaderEpoch(0))
    log.append_as_follower(far)
    assert [segment.base_offset for segment in log.segments] == [0, (1 << 31) + 5]
    assert log.log_end_offset == (1 << 31) + 6


def test_a_folder_with_another_topic_id_is_refused(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    folder.open().close()
    Path(folder.path, "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    with pytest.raises(KafkaError) as refused:
        folder.open()
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_the_number_of_open_files_is_limited(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path, segment_bytes=200)
    log = folder.open()
    folder.context.files._limit = 3
    for number in range(20):
        append(log, b"%d" % number * 30)
    assert len(log.segments) > 5
    assert values_of(log) == [b"%d" % number * 30 for number in range(20)]
    assert sum(segment._file is not None for segment in log.segments) == 3


def test_a_slice_stays_readable_after_its_file_was_closed_and_deleted(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"kept")
    piece = log.read(Offset(0), 1000, upper=Offset(1), min_one=True)
    log.truncate_fully_and_start_at(Offset(10))
    assert next(iter_batches(piece.read())).base_offset == 0
