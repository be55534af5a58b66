"""Columns hold what records read one by one hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.records.batch import BatchView, Codec, CorruptBatch, TimestampType
from milena.protocol.records.record_columns import RecordColumns
from milena.protocol.records.records import Record, build_batch, iter_records, offset_of, timestamp_of
from milena.protocol.types import Offset

texts = st.one_of(st.none(), st.binary(max_size=20))


@given(
    batches=st.lists(st.lists(st.tuples(texts, texts, st.integers(0, 9)), max_size=20), max_size=5),
    codec=st.sampled_from(list(Codec)),
    by_broker=st.booleans(),
)
def test_columns_are_the_records_one_by_one(
    batches: list[list[tuple[bytes | None, bytes | None, int]]], codec: Codec, by_broker: bool
) -> None:
    columns, expected = RecordColumns(), []
    for number, fields in enumerate(batches):
        records = [Record(at, delta, key, value) for at, (key, value, delta) in enumerate(fields)]
        start = Offset(100 * number)
        data = build_batch(records, base_offset=start, base_timestamp=1000, max_timestamp=1009, codec=codec)
        batch = BatchView(memoryview(bytearray(data)))
        if by_broker:
            batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 5555)
        columns.add(batch)
        expected += [
            (offset_of(batch, record), timestamp_of(batch, record), record.key, record.value)
            for record in iter_records(batch)
        ]
    found = [
        (columns.offsets[at], columns.timestamps[at], columns.keys[at], columns.values[at])
        for at in range(len(columns))
    ]
    assert found == expected


@pytest.mark.parametrize(("base", "timestamp"), [(2**63 - 1, 0), (0, 2**63 - 1), (0, -(2**63))])
def test_numbers_of_more_than_64_bits_are_refused(base: int, timestamp: int) -> None:
    records = [Record(0, 0, b"a", b"b"), Record(1, -1 if timestamp < 0 else 1, b"c", b"d")]
    data = build_batch(records, base_offset=Offset(base), base_timestamp=timestamp, max_timestamp=timestamp)
    columns = RecordColumns()
    with pytest.raises(CorruptBatch, match="64 bits"):
        columns.add(BatchView(memoryview(data)))
    assert (list(columns.offsets), list(columns.timestamps), columns.keys[0]) == ([base], [timestamp], b"a")
    assert len(columns.keys.present) == len(columns.values.present) == 1


def test_columns_have_what_is_wanted_of_the_offsets_that_are() -> None:
    headers = (("one", b"1"), ("two", None)), (), (("\udcff", b""),)
    records = [Record(at, 0, b"k", b"v%d" % at, found) for at, found in enumerate(headers)]
    batch = BatchView(memoryview(build_batch(records, base_offset=Offset(10), base_timestamp=5)))
    columns = RecordColumns(keys=False, headers=True)
    columns.add(batch, first=11, last=12)
    assert (list(columns.offsets), bytes(columns.values.data), len(columns.keys.present)) == ([11, 12], b"v1v2", 0)
    columns.add(batch, last=10)
    names = [columns.headers.names[at] for at in range(3)]
    assert names == ["\ufffd".encode(), b"one", b"two"]  # not UTF-8: Arrow has no such strings
    assert [columns.headers.values[at] for at in range(3)] == [b"", b"1", None]
    assert list(columns.headers.ends) == [0, 0, 1, 3]
