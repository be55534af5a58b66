"""Going through records: what a full reading refuses is refused, however the bytes come, and the facts are true."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milena.protocol.records.batch import BatchView, Codec, CorruptBatch, pack_batch
from milena.protocol.records.compression import compress
from milena.protocol.records.record_scan import (
    STEP,
    RecordFacts,
    heads_of,
    pieces_of,
    renumbered,
    scan_few_records,
    scan_records,
)
from milena.protocol.records.records import Record, build_batch, iter_records
from milena.protocol.records.varints import write_varint
from tests.unit.protocol.some_records import RECORDS, driven


def view(batch: bytes | bytearray) -> BatchView:
    return BatchView(memoryview(bytearray(batch)))


def packed(records: bytes, count: int, codec: Codec = Codec.NONE) -> BatchView:
    body = compress(codec, records)
    return view(pack_batch(body, codec=codec, count=count, last_offset_delta=0, base_timestamp=0, max_timestamp=0))


def scan(batch: BatchView) -> RecordFacts:
    return driven(scan_records(pieces_of(batch), batch.count))[0]


def facts_of(records: list[Record]) -> RecordFacts:
    """The expected facts, computed from all records in memory."""
    deltas = [record.timestamp_delta for record in records]
    return RecordFacts(
        min(deltas),
        max(deltas),
        [record.offset_delta for record in records] == list(range(len(records))),
        sum(record.key is None for record in records),
    )


def cut(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [*pieces, data[at:]]


@given(RECORDS, st.sampled_from(Codec))
def test_the_facts_are_those_of_the_records(records: list[Record], codec: Codec) -> None:
    batch = view(build_batch(records, codec=codec, base_timestamp=0, max_timestamp=0))
    assert scan(batch) == facts_of(records)
    heads = [head for head in heads_of(batch) if not isinstance(head, int)]
    assert [head[1:] for head in heads] == [
        (record.offset_delta, record.timestamp_delta, record.key is not None) for record in records
    ]
    whole = batch if not batch.is_compressed else view(build_batch(records, base_timestamp=0, max_timestamp=0))
    lengths = bytearray()
    for head in heads:
        write_varint(lengths, head.size)
    assert sum(head.size for head in heads) + len(lengths) == len(whole.records)


@given(RECORDS)
def test_a_few_records_are_read_at_one_go(records: list[Record]) -> None:
    few = [record for record in records if len(record.headers) <= 64]
    if few:
        assert scan_few_records(view(build_batch(few, base_timestamp=0, max_timestamp=0))) == facts_of(few)


@given(RECORDS, st.lists(st.integers(0, 40), max_size=60))
def test_it_does_not_matter_in_which_pieces_they_come(records: list[Record], sizes: list[int]) -> None:
    batch = view(build_batch(records, base_timestamp=0, max_timestamp=0))
    pieces = cut(bytes(batch.records), sizes)
    assert driven(scan_records(pieces, batch.count))[0] == facts_of(records)


def outcome(read: Any) -> RecordFacts | None:
    """What a reading finds, None where it refuses."""
    try:
        found = read()
    except CorruptBatch:
        return None
    return facts_of(found) if isinstance(found, list) else found


@given(
    RECORDS, st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=4), st.integers(-3, 3), st.data()
)
@example([Record(0, 0, None, None)], [(0, 10)], 0, None)
def test_what_a_full_reading_refuses_is_refused_and_nothing_else(
    records: list[Record], changes: list[tuple[int, int]], more: int, data: st.DataObject | None
) -> None:
    batch = view(build_batch(records, base_timestamp=0, max_timestamp=0))
    for place, byte in changes:
        if len(batch.records):
            batch.records[place % len(batch.records)] = byte
    body = bytes(batch.records)
    if data is not None:
        body = body[: len(body) - data.draw(st.integers(0, 3))]
    changed = packed(body, max(1, len(records) + more))
    read = outcome(lambda: list(iter_records(changed)))
    assert outcome(lambda: scan(changed)) == read
    sizes = [] if data is None else data.draw(st.lists(st.integers(0, 40), max_size=20))
    assert outcome(lambda: driven(scan_records(cut(body, sizes), changed.count))[0]) == read
    with contextlib.suppress(CorruptBatch):
        assert scan_few_records(changed) in (None, read)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        assert outcome(lambda codec=codec: scan(packed(body, changed.count, codec))) == read


@given(
    st.sampled_from([codec for codec in Codec if codec]),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=4),
)
def test_changed_streams_are_read_as_a_full_reading_does(codec: Codec, changes: list[tuple[int, int]]) -> None:
    records = [Record(n, n, b"key%d" % n, b"some text, more text" * n) for n in range(12)]
    batch = view(build_batch(records, codec=codec, base_timestamp=5))
    for place, byte in changes:
        batch.records[place % len(batch.records)] = byte
    assert outcome(lambda: scan(batch)) == outcome(lambda: list(iter_records(batch)))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("records", "count"),
    [
        ("", 1),
        ("01", 1),
        ("0c00000001", 1),
        ("0c000000010100", 2),
        ("0c00000001010000", 1),
        ("0c000000010101", 1),
        ("0c000000010102", 1),
        ("0c00000001017e", 1),
        ("10000000010102" + "0101", 1),
        ("0e00000001010000", 1),
        ("ffffffffff7f", 1),
        ("ffffffffff", 1),
        ("0c000000647e00", 1),
        ("1600" + "ff" * 11 + "00", 1),
    ],
)
def test_damaged_records_are_refused(records: str, count: int, codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        scan(packed(bytes.fromhex(records), count, codec))


@pytest.mark.parametrize("codec", Codec)
def test_large_records_are_read_over(codec: Codec) -> None:
    big = [
        Record(0, 5, b"k", b"v"),
        Record(1, 7, None, bytes(3_000_000)),
        Record(2, -3, bytes(400_000), None, (("h", bytes(900_000)), ("", None))),
        Record(3, 0, b"", b"", tuple(("h", b"%d" % n) for n in range(3000))),
    ]
    batch = view(build_batch(big, codec=codec, base_timestamp=0, max_timestamp=0))
    assert scan(batch) == facts_of(big)
    for count in (3, 5):
        body = b"".join(bytes(piece) for piece in pieces_of(batch))
        with pytest.raises(CorruptBatch):
            scan(packed(body, count, codec))
        with pytest.raises(CorruptBatch):
            scan(packed(body[:-1], 4, codec))


@pytest.mark.parametrize("codec", Codec)
def test_there_are_pauses_in_proportion_to_the_work(codec: Codec) -> None:
    many = view(build_batch([Record(n, 0, None, None) for n in range(20 * STEP)], codec=codec, base_timestamp=0))
    assert driven(scan_records(pieces_of(many), many.count))[1] >= 19
    large = view(build_batch([Record(0, 0, None, bytes(10 << 20))], codec=codec, base_timestamp=0))
    assert driven(scan_records(pieces_of(large), 1))[1] >= 100
    headed = view(build_batch([Record(0, 0, None, None, (("", None),) * (20 * STEP))], codec=codec, base_timestamp=0))
    assert driven(scan_records(pieces_of(headed), 1))[1] >= 19


@given(RECORDS, st.sampled_from(Codec))
def test_renumbered_records_are_the_same_but_for_their_offsets(records: list[Record], codec: Codec) -> None:
    batch = view(build_batch(records, codec=codec, base_timestamp=0, max_timestamp=0))
    body = b"".join(bytes(piece) for piece in renumbered(batch))
    assert list(iter_records(packed(body, batch.count))) == [
        Record(index, record.timestamp_delta, record.key, record.value, record.headers)
        for index, record in enumerate(records)
    ]


BOMB = """
import resource, sys
from milena.protocol.records.batch import BatchView, Codec, pack_batch
from milena.protocol.records.compression import compressed
from milena.protocol.records.record_scan import pieces_of, scan_records
from milena.protocol.records.varints import write_varint

codec, size = Codec[sys.argv[1]], 1 << 28
fields, head = bytearray(3), bytearray()
write_varint(fields, -1)
write_varint(fields, size)
write_varint(head, len(fields) + size + 1)

def records():
    for _ in range(3):
        yield bytes(head + fields)
        for _ in range(size >> 20):
            yield bytes(1 << 20)
        yield bytes(1)

body = bytearray()
for piece in compressed(codec, records(), 1):
    body += piece
batch = BatchView(memoryview(pack_batch(
    body, codec=codec, count=3, last_offset_delta=2, base_timestamp=0, max_timestamp=0)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in scan_records(pieces_of(batch), 3):
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
def test_768_mib_in_a_small_batch_are_read_over_in_a_few_mib() -> None:
    done = subprocess.run([sys.executable, "-c", BOMB, "ZSTD"], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 8 << 10
