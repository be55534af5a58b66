"""The cursor over the records of a batch, against a reader that is written for nothing but clarity."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milena.protocol.records.batch import BatchView, Codec, CorruptBatch, pack_batch
from milena.protocol.records.compression import DecompressionBomb, compress
from milena.protocol.records.record_cursor import RecordCursor
from milena.protocol.records.record_scan import pieces_of, scan_records
from milena.protocol.records.records import Record, build_batch, iter_records
from tests.unit.protocol.plain_records import PlainReader
from tests.unit.protocol.some_records import RECORDS, driven

CODECS = st.sampled_from(list(Codec))


def packed(body: bytes, count: int, codec: Codec = Codec.NONE) -> BatchView:
    data = compress(codec, body)
    return BatchView(
        memoryview(pack_batch(data, codec=codec, count=count, last_offset_delta=0, base_timestamp=0, max_timestamp=0))
    )


def body_of(records: list[Record]) -> bytes:
    return bytes(BatchView(memoryview(build_batch(records, base_timestamp=0, max_timestamp=0))).records)


def plain(body: bytes, count: int) -> list[Record] | None:
    try:
        return PlainReader(body).records(count)
    except CorruptBatch:
        return None


def read(batch: BatchView) -> list[Record] | None:
    try:
        return list(iter_records(batch))
    except CorruptBatch:
        return None


def checked(batch: BatchView) -> int | None:
    try:
        driven(scan_records(pieces_of(batch), batch.count))
    except CorruptBatch:
        return None
    return batch.count


@given(RECORDS, CODECS)
@example([Record(0, -(2**63), None, None), Record(1, 2**63 - 1, b"", b"")], Codec.NONE)
def test_records_are_read_as_they_were_written(records: list[Record], codec: Codec) -> None:
    body = body_of(records)
    assert read(packed(body, len(records), codec)) == plain(body, len(records)) == records


@given(RECORDS, st.data())
def test_damaged_records_are_read_or_refused_as_by_the_plain_reader(records: list[Record], data: st.DataObject) -> None:
    body = bytearray(body_of(records))
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)), max_size=3)):
        body[at] = byte
    cut = bytes(body[: data.draw(st.integers(0, len(body)))]) if data.draw(st.booleans()) else bytes(body)
    count = max(0, len(records) + data.draw(st.integers(-1, 1)))
    expected = plain(cut, count)
    batch = packed(cut, count, data.draw(CODECS))
    assert read(batch) == expected
    assert checked(batch) == (None if expected is None else count)


@given(st.binary(max_size=40), st.integers(-1, 3))
def test_any_bytes_are_read_or_refused_as_by_the_plain_reader(body: bytes, count: int) -> None:
    assert read(packed(body, count)) == plain(body, count)


def test_a_cursor_gives_spans_without_making_the_record() -> None:
    cursor = RecordCursor(packed(body_of([Record(0, 5, b"k", None, (("h", b"x"),)), Record(1, 7, None, b"vv")]), 2))
    assert cursor.advance()
    assert (cursor.offset_delta, cursor.timestamp_delta) == (0, 5)
    assert (cursor.key_length, cursor.value_length, cursor.header_count) == (1, -1, 1)
    assert PlainReader(cursor.encoded).record() == Record(0, 5, b"k", None, (("h", b"x"),))
    assert cursor.advance()
    assert (cursor.key, cursor.value, cursor.headers) == (None, b"vv", ())
    assert not cursor.advance()
    assert not cursor.advance()


def test_records_beyond_the_limit_are_not_decompressed() -> None:
    batch = packed(body_of([Record(0, 0, None, bytes(1 << 20)), Record(1, 0, None, bytes(1 << 20))]), 2, Codec.ZSTD)
    cursor = RecordCursor(batch, limit=(1 << 20) + (1 << 19))
    assert cursor.advance()
    with pytest.raises(DecompressionBomb):
        cursor.advance()


def test_a_record_of_many_pieces_is_joined_once() -> None:
    batch = packed(body_of([Record(0, 0, None, bytes(20 << 20)), Record(1, 0, b"k", b"v")]), 2, Codec.GZIP)
    assert [len(record.value or b"") for record in iter_records(batch)] == [20 << 20, 1]


def test_a_negative_length_is_refused_before_more_is_decompressed() -> None:
    body = b"\xff\xff\xff\xff\x0f" + bytes(4 << 20)
    with pytest.raises(CorruptBatch, match="a record of -2147483648 bytes"):
        RecordCursor(packed(body, 1, Codec.GZIP), limit=1 << 20).advance()
