"""Finding records by their time (ListOffsets)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import NO_TIMESTAMP, Codec
from milena.protocol.types import Offset
from tests.unit.storage.logs import START_MS, LogFolder, append


@pytest.mark.parametrize("codec", list(Codec))
def test_a_record_is_found_within_its_batch(tmp_path: Path, codec: Codec) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"a", b"b", b"c", timestamp=100, epoch=1, codec=codec)
    append(log, b"d", b"e", timestamp=200, epoch=2, codec=codec)
    assert log.offset_for_timestamp(0) == (100, 0, 1)
    assert log.offset_for_timestamp(102) == (102, 2, 1)
    assert log.offset_for_timestamp(103) == (200, 3, 2)
    assert log.offset_for_timestamp(202) is None
    assert log.max_timestamp_offset() == (201, 4, 2)


def test_records_before_the_log_start_are_not_found(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"a", b"b", b"c", timestamp=100)
    log.set_high_watermark(Offset(3))
    log.increment_log_start(Offset(1))
    assert log.offset_for_timestamp(0) == (101, 1, 0)


def test_an_empty_log_has_no_largest_timestamp(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    assert log.max_timestamp_offset() is None
    append(log, timestamp=NO_TIMESTAMP)
    assert log.offset_for_timestamp(0) is None


def test_the_largest_timestamp_is_known_after_a_restart(tmp_path: Path) -> None:
    """It is the last entry of the time index, also after a restart and in a segment of any size."""
    folder = LogFolder(tmp_path)
    log = folder.open()
    append(log, timestamp=100)
    log.close()
    log = folder.open()
    append(log, timestamp=300)
    log.roll()
    append(log, timestamp=200)
    log.close()
    assert folder.open().max_timestamp_offset() == (300, 1, 0)


def test_with_log_append_time_all_records_have_the_brokers_time(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path, message_timestamp_type="LogAppendTime")
    log = folder.open()
    append(log, b"a", b"b", timestamp=5)
    folder.clock.now += 10
    append(log, b"c", b"d", timestamp=3)
    assert log.offset_for_timestamp(START_MS + 1) == (START_MS + 10, 2, 0)
    assert log.max_timestamp_offset() == (START_MS + 10, 2, 0)


def test_the_search_continues_after_a_segment_whose_latest_record_is_deleted(tmp_path: Path) -> None:
    """In this case Kafka finds no record."""
    log = LogFolder(tmp_path).open()
    append(log, timestamp=300)
    append(log, timestamp=100)
    log.roll()
    append(log, timestamp=400)
    log.set_high_watermark(Offset(3))
    log.increment_log_start(Offset(1))
    assert log.offset_for_timestamp(200) == (400, 2, 0)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 4)), min_size=1, max_size=30),
    st.integers(0, 310),
    st.booleans(),
)
def test_the_first_record_with_at_least_the_target_timestamp_is_found(
    batches: list[tuple[int, int]], target: int, reopened: bool
) -> None:
    """All records are compared in order of offset, as in a log that is searched from its start."""
    with tempfile.TemporaryDirectory() as path:
        folder = LogFolder(path, segment_bytes=600, index_interval_bytes=150)
        log = folder.open()
        records: list[tuple[int, int]] = []
        for timestamp, count in batches:
            first = append(log, *[b"x" * 20] * count, timestamp=timestamp).first_offset
            records += [(timestamp + delta, first + delta) for delta in range(count)]
        if reopened:
            log.close()
            log = folder.open()
        found = log.offset_for_timestamp(target)
        young = [record for record in records if record[0] >= target]
        assert (found and found[:2]) == (young[0] if young else None)
        largest = log.max_timestamp_offset()
        assert largest is not None
        assert largest.timestamp == max(timestamp for timestamp, _ in records)
        assert (largest.timestamp, largest.offset) in records


def test_a_batch_that_decompresses_to_more_than_64_mib_is_not_searched(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, bytes(65 << 20), timestamp=100, codec=Codec.ZSTD)
    append(log, b"behind it", timestamp=200)
    with pytest.raises(KafkaError) as caught:
        log.offset_for_timestamp(50)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.max_timestamp_offset() == (200, 1, 0)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_compressed_record_above_the_limit_ends_the_search(tmp_path: Path, codec: Codec) -> None:
    """As in Kafka 4.4 the records before it are found, and a limit that was lowered holds for stored records."""
    folder = LogFolder(tmp_path)
    log = folder.open()
    append(log, b"a", b"x" * 600, b"c", timestamp=100, codec=codec)
    log.close()
    log = LogFolder(tmp_path, max_decompressed_message_bytes=500).open()
    assert log.offset_for_timestamp(100) == (100, 0, 0)
    message = r"Invalid record size: 607 exceeds the configured maximum record size of 500\."
    with pytest.raises(KafkaError, match=message) as refused:
        log.offset_for_timestamp(101)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    with pytest.raises(KafkaError, match=message):
        log.max_timestamp_offset()


def test_the_limit_is_not_that_of_uncompressed_records(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, max_decompressed_message_bytes=500).open()
    append(log, b"a", b"x" * 600, b"c", timestamp=100)
    assert log.offset_for_timestamp(101) == (101, 1, 0)
    assert log.max_timestamp_offset() == (102, 2, 0)
