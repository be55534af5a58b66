"""The header view: what it reads, what it writes in place, what it refuses."""

from __future__ import annotations

import pytest

from milena.protocol.records.batch import (
    HEADER_SIZE,
    BatchView,
    Codec,
    CorruptBatch,
    TimestampType,
    UnsupportedMagic,
    iter_batches,
    pack_batch,
)
from milena.protocol.records.crc import crc32c
from milena.protocol.records.records import Record, build_batch
from milena.protocol.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId

RECORDS = [Record(0, 0, b"k", b"v"), Record(1, 5, None, b"w"), Record(2, 3, b"k", None)]


def batch(**header: object) -> memoryview:
    return memoryview(bytearray(build_batch(RECORDS, base_timestamp=1_000, **header)))  # type: ignore[arg-type]


def test_crc32c_has_the_check_value_of_the_castagnoli_polynomial() -> None:
    assert crc32c(b"123456789") == 0xE306_9283


def test_crc32c_goes_on_from_an_earlier_value_and_reads_writable_buffers() -> None:
    assert crc32c(memoryview(bytearray(b"56789")), crc32c(bytearray(b"1234"))) == crc32c(b"123456789")


def test_the_view_reads_every_field_of_the_header() -> None:
    view = BatchView(
        batch(
            base_offset=Offset(7),
            leader_epoch=LeaderEpoch(3),
            producer_id=ProducerId(11),
            producer_epoch=ProducerEpoch(2),
            base_sequence=40,
            transactional=True,
        )
    )
    assert (view.base_offset, view.last_offset, view.next_offset) == (7, 9, 10)
    assert (view.leader_epoch, view.magic, view.count) == (3, 2, 3)
    assert (view.base_timestamp, view.max_timestamp) == (1_000, 1_005)
    assert (view.producer_id, view.producer_epoch, view.base_sequence, view.last_sequence) == (11, 2, 40, 42)
    assert view.has_producer_id and view.is_transactional and not view.is_control and not view.has_delete_horizon
    assert (view.codec, view.timestamp_type) == (Codec.NONE, TimestampType.CREATE_TIME)
    assert view.size_in_bytes == len(view.memory) == HEADER_SIZE + len(view.records)
    view.verify_crc()


def test_a_sequence_wraps_to_zero_after_the_largest_int32() -> None:
    assert BatchView(batch(producer_id=ProducerId(1), base_sequence=2**31 - 1)).last_sequence == 1


def test_a_batch_without_a_producer_has_no_sequence() -> None:
    view = BatchView(batch())
    assert (view.has_producer_id, view.last_sequence) == (False, -1)


def test_offset_and_epoch_are_assigned_in_place_and_the_checksum_stays_right() -> None:
    memory = batch()
    BatchView(memory).assign(Offset(1 << 40), LeaderEpoch(9))
    again = BatchView(memory)
    assert (again.base_offset, again.leader_epoch, again.last_offset) == (1 << 40, 9, (1 << 40) + 2)
    assert again.is_valid


def test_log_append_time_is_written_with_a_new_checksum() -> None:
    memory = batch(codec=Codec.GZIP)
    BatchView(memory).set_max_timestamp(TimestampType.LOG_APPEND_TIME, 77_777)
    again = BatchView(memory)
    assert (again.timestamp_type, again.max_timestamp, again.codec) == (
        TimestampType.LOG_APPEND_TIME,
        77_777,
        Codec.GZIP,
    )
    assert again.is_valid


def test_a_changed_byte_makes_the_checksum_wrong() -> None:
    memory = batch()
    memory[-1] ^= 1
    assert not BatchView(memory).is_valid
    with pytest.raises(CorruptBatch, match="checksum"):
        BatchView(memory).verify_crc()


def test_batches_are_cut_at_their_lengths_and_a_partial_one_at_the_end_is_left_out() -> None:
    first, second = bytes(batch()), bytes(batch(base_offset=Offset(3)))
    for kept in (0, 5, 12, HEADER_SIZE, len(second) - 1):
        data = memoryview(first + second + second[:kept])
        assert [view.base_offset for view in iter_batches(data)] == [0, 3]


def test_a_batch_cut_short_is_no_batch() -> None:
    memory = batch()
    for length in (0, 11, 12, 60, 61, len(memory) - 1):
        with pytest.raises(CorruptBatch):
            BatchView(memory[:length])


def test_a_zero_filled_tail_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="length"):
        list(iter_batches(memoryview(bytes(100))))


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_below_the_header_is_corrupt(length: int) -> None:
    memory = batch()
    memory[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch, match="length"):
        list(iter_batches(memory))


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_format_is_refused(magic: int) -> None:
    memory = batch()
    memory[16] = magic
    with pytest.raises(UnsupportedMagic):
        list(iter_batches(memory))


def test_an_older_message_may_be_shorter_than_a_header() -> None:
    message = bytes(8) + (17).to_bytes(4, "big") + bytes(4) + b"\1" + bytes(12)
    with pytest.raises(UnsupportedMagic):
        list(iter_batches(memoryview(message)))


def test_an_unknown_codec_is_corrupt() -> None:
    memory = batch()
    memory[22] |= 5
    with pytest.raises(CorruptBatch, match="codec 5"):
        _ = BatchView(memory).codec


def test_a_cleaned_batch_may_be_empty() -> None:
    memory = pack_batch(b"", count=0, last_offset_delta=4, base_timestamp=-1, max_timestamp=-1, base_offset=Offset(10))
    view = BatchView(memoryview(memory))
    assert (view.count, view.base_offset, view.next_offset, view.size_in_bytes) == (0, 10, 15, 61)
