"""Records: written and read back with every codec, counted, refused when damaged."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch

from milena.protocol.records.batch import (
    BatchView,
    Codec,
    CorruptBatch,
    TimestampType,
    iter_batches,
    pack_batch,
)
from milena.protocol.records.compression import DecompressionBomb
from milena.protocol.records.record_cursor import Header
from milena.protocol.records.records import (
    BatchBuilder,
    Record,
    build_batch,
    iter_records,
    offset_of,
    timestamp_of,
)
from milena.protocol.types import Offset, ProducerEpoch, ProducerId

BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=20), BYTES), max_size=4).map(tuple)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.lists(st.builds(Record, INT32, INT64, BYTES, BYTES, HEADERS), max_size=20)


def view(batch: bytes) -> BatchView:
    return BatchView(memoryview(bytearray(batch)))


@given(RECORDS, st.sampled_from(Codec))
def test_records_come_back_through_every_codec(records: list[Record], codec: Codec) -> None:
    batch = view(build_batch(records, codec=codec, base_timestamp=0, max_timestamp=0))
    assert batch.is_valid and batch.codec is codec and batch.count == len(records)
    assert list(iter_records(batch)) == records


@given(
    st.lists(st.sampled_from([0, 1, 2, 16, 17, 20, 21, 22, 23, 24, 30, 57, 60, -1]) | st.integers(0, 400), max_size=4),
    st.sampled_from(Codec),
    st.data(),
)
def test_any_changed_batch_decodes_or_is_corrupt(places: list[int], codec: Codec, data: st.DataObject) -> None:
    records = [Record(n, n, b"key%d" % n, b"value" * n, (("h", b"x"), ("n", None))) for n in range(12)]
    batch = bytearray(build_batch(records, codec=codec, base_timestamp=5))
    for place in places:
        batch[place % len(batch)] = data.draw(st.integers(0, 255))
    cut = batch[: data.draw(st.integers(0, len(batch)) | st.just(len(batch)))]
    with contextlib.suppress(CorruptBatch):
        for found in iter_batches(memoryview(cut)):
            _ = found.codec, found.is_valid, found.last_offset, found.last_sequence, repr(found)
            for record in iter_records(found, limit=10_000):
                _ = offset_of(found, record), timestamp_of(found, record)


@given(st.binary(max_size=300))
def test_garbage_decodes_or_is_corrupt(garbage: bytes) -> None:
    with contextlib.suppress(CorruptBatch):
        for found in iter_batches(memoryview(garbage)):
            list(iter_records(found, limit=10_000))


@given(st.binary(max_size=100), st.integers(-2, 2**31 - 1))
def test_garbage_in_place_of_records_decodes_or_is_corrupt(garbage: bytes, count: int) -> None:
    packed = pack_batch(garbage, count=count, last_offset_delta=0, base_timestamp=0, max_timestamp=0)
    with contextlib.suppress(CorruptBatch):
        list(iter_records(BatchView(memoryview(packed))))


def test_timestamps_are_milliseconds_relative_to_the_first() -> None:
    batch = view(build_batch([Record(0, 0, None, b""), Record(1, -7, None, b"")], base_timestamp=1_700_000_000_123))
    assert [timestamp_of(batch, record) for record in iter_records(batch)] == [1_700_000_000_123, 1_700_000_000_116]
    assert batch.max_timestamp == 1_700_000_000_123


def test_log_append_time_is_the_timestamp_of_every_record() -> None:
    batch = view(build_batch([Record(0, 0, None, b""), Record(1, 9, None, b"")], base_timestamp=100))
    batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 5_000)
    again = BatchView(batch.memory)
    assert [timestamp_of(again, record) for record in iter_records(again)] == [5_000, 5_000]


def test_records_without_a_timestamp_have_none() -> None:
    batch = view(build_batch([Record(0, 0, None, b"")]))
    assert [timestamp_of(batch, record) for record in iter_records(batch)] == [-1]


def test_a_base_without_a_timestamp_still_counts() -> None:
    batch = view(build_batch([Record(0, 0, None, b""), Record(1, 6, None, b"")]))
    assert [timestamp_of(batch, record) for record in iter_records(batch)] == [-1, 5]


def test_offsets_count_from_the_base_and_may_have_gaps() -> None:
    batch = view(build_batch([Record(0, 0, None, b""), Record(5, 0, None, b"")], base_offset=Offset(100)))
    assert [offset_of(batch, record) for record in iter_records(batch)] == [100, 105]
    assert batch.next_offset == 106


def test_a_header_key_that_is_not_utf8_is_written_back_unchanged() -> None:
    batch = build_batch([Record(0, 0, None, None, (("k\udcff", b"v"),))])
    assert b"k\xff" in batch
    assert build_batch(iter_records(view(batch))) == batch


def test_a_builder_numbers_its_records_and_takes_the_first_timestamp_as_base() -> None:
    builder = BatchBuilder()
    builder.append(timestamp=50, key=b"a", value=b"1", headers=[("h", None)])
    builder.append(timestamp=40, value=None)
    batch = view(
        builder.build(codec=Codec.LZ4, producer_id=ProducerId(3), producer_epoch=ProducerEpoch(0), base_sequence=8)
    )
    assert list(iter_records(batch)) == [Record(0, 0, b"a", b"1", (("h", None),)), Record(1, -10, None, None)]
    assert (batch.base_timestamp, batch.max_timestamp, batch.producer_id, batch.last_sequence) == (50, 50, 3, 9)


@given(BYTES, BYTES)
def test_a_builder_knows_its_size_and_whether_a_record_fits(key: bytes | None, value: bytes | None) -> None:
    builder = BatchBuilder()
    before = builder.size
    builder.append(timestamp=2**62, key=key, value=value)
    builder.append(timestamp=0, key=key, value=value)
    assert builder.size == len(builder.build())
    assert BatchBuilder().has_room_for(key, value, limit=before + 42 + len(key or b"") + len(value or b""))
    assert not BatchBuilder().has_room_for(key, value, limit=before)


@pytest.mark.parametrize(
    ("records", "count", "why"),
    [
        ("", 1, "end before"),
        ("0c00000001", 1, "6 bytes, but 4"),
        ("01", 1, "-1 bytes"),
        ("0c0000000101", 1, "6 bytes, but 5"),
        ("0c000000010100", 2, "end before"),
        ("0c000000010100" + "00", 1, "1 bytes follow"),
        ("0c000000010100", 0, "7 bytes follow"),
        ("0c000000016400", 1, "end before"),
        ("0c000000010101", 1, "-1 headers"),
        ("0c000000010102", 1, "end before"),
        ("10000000010102" + "01" + "01", 1, "without a key"),
        ("0e000000010100" + "00", 1, "7 bytes has fields of 6"),
        ("ffffffffff7f", 1, "32 bits"),
        ("ffffffffffffff", 1, "32 bits"),
        ("0c000000010100", -1, "count of -1"),
    ],
)
def test_damaged_records_are_refused_with_the_reason(records: str, count: int, why: str) -> None:
    packed = pack_batch(bytes.fromhex(records), count=count, last_offset_delta=0, base_timestamp=0, max_timestamp=0)
    with pytest.raises(CorruptBatch, match=why):
        list(iter_records(BatchView(memoryview(packed))))


def test_any_negative_length_of_a_key_or_value_is_null_as_in_kafka() -> None:
    packed = pack_batch(
        bytes.fromhex("0c000000030500"), count=1, last_offset_delta=0, base_timestamp=0, max_timestamp=0
    )
    assert list(iter_records(BatchView(memoryview(packed)))) == [Record(0, 0, None, None)]


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_grows_beyond_the_limit_is_a_bomb(codec: Codec) -> None:
    batch = view(build_batch([Record(0, 0, None, bytes(100_000))], codec=codec))
    assert len(list(iter_records(batch, limit=200_000))) == 1
    if codec is not Codec.NONE:
        with pytest.raises(DecompressionBomb):
            list(iter_records(batch, limit=50_000))


def test_a_large_record_has_its_length_in_several_bytes() -> None:
    batch = view(build_batch([Record(0, 0, None, bytes(3_000_000)), Record(1, 0, None, b"")]))
    assert [len(record.value or b"") for record in iter_records(batch)] == [3_000_000, 0]


SECONDS = st.integers(0, 2**31).map(lambda second: second * 1000)
"""kio knows no parts of a second."""


@given(st.lists(st.tuples(SECONDS, BYTES, BYTES, HEADERS), min_size=1, max_size=10))
def test_kio_reads_the_same_records(fields: list[tuple[int, bytes | None, bytes | None, tuple[Header, ...]]]) -> None:
    records = [Record(number, *of) for number, of in enumerate(fields)]
    batch = BatchView(memoryview(build_batch(records, base_timestamp=0, max_timestamp=max(of[0] for of in fields))))
    theirs, _ = read_batch(batch.memory, 0)
    found = [
        (
            int(record.offset),
            round(record.timestamp.timestamp() * 1000),
            record.key,
            record.value,
            tuple(((header.key or b"").decode(), header.value) for header in record.headers),
        )
        for record in theirs.records
    ]
    assert found == [
        (int(offset_of(batch, record)), timestamp_of(batch, record), record.key, record.value, record.headers)
        for record in iter_records(batch)
    ]


@pytest.mark.parametrize(("base", "delta", "time"), [(2**63 - 1, 1, -(2**63)), (-5, -(2**63), 2**63 - 5), (7, -8, -1)])
def test_a_timestamp_wraps_as_javas_do(base: int, delta: int, time: int) -> None:
    batch = BatchView(memoryview(build_batch([Record(0, delta, None, b"")], base_timestamp=base, max_timestamp=base)))
    assert [timestamp_of(batch, record) for record in iter_records(batch)] == [time]
