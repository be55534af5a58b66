"""The records that a cleaning keeps, compared with a model without segments, batches or maps."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milena.protocol.records.batch import Codec, CorruptBatch
from milena.protocol.records.records import Record, build_batch, iter_records, timestamp_of
from milena.protocol.types import LeaderEpoch
from milena.runtime.disk import Disk, File
from milena.runtime.files import RealDisk
from milena.storage.cleaning.cleaning_round import Round
from milena.storage.cleaning.offset_map import ENTRY_SIZE
from tests.fixtures.properties import examples
from tests.unit.storage.cleaning.cleaned_logs import DAY_MS, Kept, KeyedLog, records_of

KEYS = [*(b"%d" % number for number in range(8)), b"", b"long" * 40]
RECORDS = st.lists(
    st.tuples(st.sampled_from([None, *KEYS]), st.sampled_from([None, b"v", b"w" * 50])), min_size=1, max_size=4
)
WRITES = st.tuples(RECORDS, st.sampled_from(list(Codec)), st.integers(0, 1))
"""Records, codec, and the increase of the leader epoch."""
CLEANINGS = st.integers(1, 8)
"""The number of keys that fit into the offset map."""
Records = list[tuple[bytes | None, bytes | None]]
HISTORIES = st.lists(st.one_of(WRITES, WRITES, WRITES, CLEANINGS), min_size=1, max_size=30)


def last_values(records: list[Kept]) -> dict[bytes, Kept]:
    return {record.key: record for record in records if record.key is not None}


@settings(max_examples=examples(40))
@given(HISTORIES)
def test_cleanings_keep_the_last_record_of_each_key(
    history: list[tuple[Records, Codec, int] | int],
) -> None:
    with tempfile.TemporaryDirectory() as path:
        keyed = KeyedLog.at(Path(path), segment_bytes=1000)
        epoch = 0
        written: list[Kept] = []
        for step in history:
            if isinstance(step, int):
                before = keyed.records()
                keyed.clean(memory=step * 2 * ENTRY_SIZE, load_factor=0.5)
                assert kept_of(before, keyed.dirty or 0) == keyed.records()
                continue
            records, codec, later = step
            epoch += later
            first = keyed.log.log_end_offset
            keyed.write(*records, codec=codec, epoch=epoch)
            written += [
                Kept(first + number, key, value, keyed.now + number) for number, (key, value) in enumerate(records)
            ]
            assert {one.epoch for one in keyed.log.epochs.entries} == {batch.leader_epoch for batch in keyed.batches()}
        assert last_values(keyed.records()) == last_values(written)


def kept_of(before: list[Kept], cleaned_to: int) -> list[Kept]:
    """Returns the records of ``before`` that remain: below ``cleaned_to`` only the last record of each key."""
    last = {record.key: record.offset for record in before if record.offset < cleaned_to}
    return [
        record
        for record in before
        if record.offset >= cleaned_to or (record.key is not None and last[record.key] == record.offset)
    ]


def test_many_cleanings_with_a_small_map_equal_one_with_a_large_map(tmp_path: Path) -> None:
    logs = [KeyedLog.at(tmp_path / name) for name in ("small", "large")]
    for keyed in logs:
        for number in range(200):
            keyed.write((b"%d" % (number * number % 61), b"%d" % number))
    small, large = logs
    large.clean()
    rounds = 0
    while small.range().first_dirty < small.range().end:
        small.clean(memory=8 * ENTRY_SIZE, load_factor=0.5)
        rounds += 1
    assert rounds > 5
    assert small.records() == large.records()
    assert small.dirty == large.dirty


def test_a_cleaning_ends_within_a_batch_if_the_offset_map_is_full(tmp_path: Path) -> None:
    keyed = KeyedLog.at(tmp_path)
    keyed.write((b"third", b"old"))
    keyed.write((b"first", b"1"), (b"second", b"2"), (b"third", b"3"), (b"first", b"4"))
    for _ in range(20):
        keyed.write((b"filler", b"x" * 40))
    keyed.dirty = 1
    keyed.clean(memory=4 * ENTRY_SIZE, load_factor=0.5)
    assert keyed.dirty == 3
    assert [record.offset for record in keyed.records()][:5] == [0, 1, 2, 3, 4]
    keyed.clean(memory=4 * ENTRY_SIZE, load_factor=0.5)
    assert [record.offset for record in keyed.records()][:3] == [2, 3, 4]


def test_a_tombstone_stays_until_the_delete_horizon_that_the_first_cleaning_sets(tmp_path: Path) -> None:
    keyed = KeyedLog.at(tmp_path, delete_retention_ms=DAY_MS)
    keyed.write((b"key", b"value"))
    keyed.write((b"other", b"value"), (b"key", None))
    for _ in range(20):
        keyed.write((b"filler", b"x" * 40))
    keyed.clean()
    (batch,) = [one for one in keyed.batches() if one.has_delete_horizon]
    assert batch.base_timestamp == keyed.now + DAY_MS
    # The timestamps are unchanged, relative to another base.
    assert [record.timestamp for record in records_of(batch)] == [keyed.now - 20, keyed.now - 19]
    horizon = batch.base_timestamp
    keyed.now = horizon - 1
    keyed.clean()
    assert (b"key", None) in [(record.key, record.value) for record in keyed.records()]
    assert [one.base_timestamp for one in keyed.batches() if one.has_delete_horizon] == [horizon]
    keyed.now = horizon
    keyed.clean()
    assert b"key" not in [record.key for record in keyed.records()]
    assert b"other" in [record.key for record in keyed.records()]


def test_unlimited_delete_retention_sets_no_delete_horizon(tmp_path: Path) -> None:
    """In Kafka the sum of clock and retention overflows, and a negative delete horizon counts as none."""
    keyed = KeyedLog.at(tmp_path, delete_retention_ms=(1 << 63) - 1)
    keyed.write((b"key", b"value"), (b"other", b"value"))
    keyed.write((b"other", b"new"), (b"key", None))
    for _ in range(20):
        keyed.write((b"filler", b"x" * 40))
    keyed.clean()
    before = keyed.batches()[1]
    assert not before.has_delete_horizon
    assert keyed.records()[1][:3] == (3, b"key", None)
    keyed.log.update_config(replace(keyed.log.config, delete_retention_ms=DAY_MS))
    for _ in range(20):
        keyed.write((b"filler", b"x" * 40))
    keyed.clean()
    after = keyed.batches()[1]
    assert (after.has_delete_horizon, after.base_timestamp) == (True, keyed.now + DAY_MS)


def test_records_without_a_key_are_removed(tmp_path: Path) -> None:
    keyed = KeyedLog.at(tmp_path)
    keyed.write((None, b"1"), (b"key", b"2"), (None, b"3"))
    for _ in range(20):
        keyed.write((None, b"x" * 40))
    keyed.clean()
    (first, *_) = keyed.batches()
    assert [record.offset for record in records_of(first)] == [1]
    assert (first.base_offset, first.last_offset) == (0, 2)
    assert all(record.key is not None or record.offset >= (keyed.dirty or 0) for record in keyed.records())


def test_the_last_batch_of_a_producer_stays_without_its_records(tmp_path: Path) -> None:
    keyed = KeyedLog.at(tmp_path)
    for sequence in range(3):
        keyed.write((b"key", b"%d" % sequence), producer=(7, 2, sequence))
    for _ in range(20):
        keyed.write((b"key", b"x" * 40))
    keyed.clean()
    (batch,) = [one for one in keyed.batches() if one.producer_id == 7]
    assert (batch.base_offset, batch.count, batch.producer_epoch, batch.base_sequence) == (2, 0, 2, 2)
    # A duplicate is still recognised, also after a complete recovery.
    keyed.log.close()
    keyed.log = keyed.folder.open(clean=False)
    entry = keyed.log.producers.get(7)
    assert entry is not None and entry.last_sequence == 2


def test_the_timestamp_of_an_empty_batch_is_not_found_by_time(tmp_path: Path) -> None:
    """The header of the empty batch still has its former maximum timestamp, the latest of the log."""
    keyed = KeyedLog.at(tmp_path)
    keyed.now += 1000
    keyed.write((b"key", b"old"), producer=(7, 0, 0))
    youngest = keyed.now
    keyed.now -= 1000
    for number in range(20):
        keyed.write((b"key", b"%d" % number * 20))
    keyed.clean()
    assert keyed.batches()[0].max_timestamp == youngest and not keyed.batches()[0].count
    expected = (keyed.now, keyed.log.log_end_offset - 1, 0)
    for recovery_point in (None, 0):
        assert keyed.log.max_timestamp_offset() == expected
        assert keyed.log.offset_for_timestamp(keyed.now) == expected
        assert keyed.log.offset_for_timestamp(youngest) is None
        keyed.log.close()
        keyed.log = keyed.folder.open(clean=recovery_point is None)


def test_aborted_records_are_removed_at_once_and_their_marker_after_its_delete_horizon(tmp_path: Path) -> None:
    keyed = KeyedLog.at(tmp_path, delete_retention_ms=DAY_MS)
    keyed.write((b"key", b"committed"))
    keyed.write((b"key", b"aborted"), producer=(7, 0, 0), transactional=True)
    keyed.end((7, 0), commit=False)
    keyed.write((b"new", b"value"), producer=(7, 0, 1))
    for number in range(20):
        keyed.write((b"filler", b"%d" % number * 30))
    keyed.clean()
    assert [record.value for record in keyed.records() if record.key == b"key"] == [b"committed"]
    assert [one.base_offset for one in keyed.batches() if one.is_control] == [2]
    keyed.clean()
    (marker,) = [one for one in keyed.batches() if one.is_control]
    assert marker.has_delete_horizon and marker.base_timestamp == keyed.now + DAY_MS
    keyed.now += DAY_MS
    keyed.clean()
    assert not [one for one in keyed.batches() if one.is_control]


def test_an_incomplete_entry_of_the_active_transaction_index_is_no_damage(tmp_path: Path) -> None:
    """The event loop appends to the transaction index of the active segment while the worker reads it."""
    keyed = KeyedLog.at(tmp_path)
    keyed.write((b"key", b"old"))
    keyed.write((b"key", b"new"), (b"other", b"value"))
    keyed.log.roll()
    keyed.write((b"key", b"aborted"), producer=(7, 0, 0), transactional=True)
    keyed.end((7, 0), commit=False)
    with Path(keyed.log.segments.active.path(".txnindex")).open("ab") as index:
        index.write(bytes(20))
    keyed.clean()
    assert [record.offset for record in keyed.records()] == [1, 2, 3]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_whose_records_all_stay_is_copied_unchanged(tmp_path: Path, codec: Codec) -> None:
    keyed = KeyedLog.at(tmp_path)
    for number in range(30):
        keyed.write((b"%d" % number, b"value" * 10), codec=codec)
    before = [batch.memory.tobytes() for batch in keyed.batches()]
    keyed.clean()
    assert [batch.memory.tobytes() for batch in keyed.batches()] == before


@pytest.mark.parametrize("delta", [1 << 30, 200, -5])
def test_a_record_with_a_wrong_offset_delta_does_not_extend_the_cleaned_range(tmp_path: Path, delta: int) -> None:
    """In uncompressed batches, brokers store the offset deltas of the producer."""
    keyed = KeyedLog.at(tmp_path)
    for number in range(5):
        keyed.write((b"%d" % (number % 3), b"value" * 10))
    records = [Record(0, 0, b"here", b""), Record(delta, 0, b"there", b""), Record(2, 0, b"behind", b"")]
    data = build_batch(records, base_timestamp=keyed.now, last_offset_delta=2)
    keyed.log.append_as_leader(memoryview(bytearray(data)), leader_epoch=LeaderEpoch(0))
    for number in range(30):
        keyed.write((b"%d" % (number % 3), b"value" * 10))
    bound = keyed.log.segments[-3].base_offset
    keyed.log.set_high_watermark(bound)
    before = [one.memory.tobytes() for one in keyed.batches() if one.base_offset >= bound]
    for keys in (5, 6, 60):  # the map is full after the wrong record, or not at all
        found = keyed.range()
        keyed.clean(memory=keys * 2 * ENTRY_SIZE, load_factor=0.5)
        assert 0 < (keyed.dirty or 0) <= found.end == bound
        keyed.dirty = None
    assert [one.memory.tobytes() for one in keyed.batches() if one.base_offset >= bound] == before
    assert {b"here", b"there", b"behind"} < {record.key for record in keyed.records()}


def test_a_damaged_batch_aborts_the_cleaning_and_leaves_the_log_unchanged(tmp_path: Path) -> None:
    keyed = KeyedLog.at(tmp_path)
    for number in range(30):
        keyed.write((b"%d" % (number % 3), b"value" * 10))
    path = Path(keyed.folder.path, f"{keyed.log.segments[1].base_offset:020d}.log")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    names = keyed.folder.names()
    # If the damage is below the dirty part, it is found when the segments are copied.
    for dirty in (0, keyed.log.segments[2].base_offset):
        keyed.dirty = dirty
        with pytest.raises(CorruptBatch, match=f"{path.name}.*checksum"):
            run(keyed.round(keyed.range()))
    # The first cleaned segment is complete and stays; the damaged batch is in the second.
    assert {name.partition(".")[0] for name in keyed.folder.names() if name not in names} == {"0" * 20}
    assert path.read_bytes() == data


def test_a_batch_too_large_to_decompress_stays_and_so_do_later_tombstones(tmp_path: Path) -> None:
    """Its records are unknown: without their tombstones, deleted keys would reappear."""
    keyed = KeyedLog.at(tmp_path, delete_retention_ms=DAY_MS, segment_bytes=2000)
    keyed.write((b"before", b"1"), (b"gone", b"1"))
    keyed.write((b"gone", None))
    keyed.write((b"small", b"1"), (b"large", bytes(200_000)), (b"deleted", b"1"), codec=Codec.ZSTD)
    keyed.write((b"before", b"2"), (b"deleted", None), (b"small", None))
    for number in range(60):
        keyed.write((b"filler", b"%d" % number * 30))
    large = keyed.batches()[2].memory.tobytes()
    for _ in range(3):
        keyed.now += DAY_MS
        keyed.dirty = None
        keyed.clean(limit=100_000)
    assert keyed.batches()[1].memory.tobytes() == large
    kept = [(record.key, record.value and record.value[:1]) for record in keyed.records() if record.key != b"filler"]
    assert kept == [
        *[(b"small", b"1"), (b"large", b"\0"), (b"deleted", b"1")],
        *[(b"before", b"2"), (b"deleted", None), (b"small", None)],
    ]
    keyed.dirty = None
    keyed.clean()  # with a limit that is large enough
    assert [record.key for record in keyed.records() if record.key != b"filler"] == [b"large", b"before"]


HEADERS_THAT_NO_CHECKSUM_COVERS = {
    "base offset too large": (0, 1 << 40),
    "base offset too small": (0, 0),
    "length too large": (8, (1 << 30) << 32),
    "length negative": (8, -1),
    "length too small": (8, 20 << 32),
    "leader epoch too small": (8, None),
}


@pytest.mark.parametrize("name", list(HEADERS_THAT_NO_CHECKSUM_COVERS))
def test_a_damaged_header_aborts_the_cleaning(tmp_path: Path, name: str) -> None:
    at, value = HEADERS_THAT_NO_CHECKSUM_COVERS[name]
    keyed = KeyedLog.at(tmp_path, segment_bytes=1000)
    for number in range(40):
        keyed.write((b"%d" % (number % 3), b"value" * 10), epoch=3)
    path = Path(keyed.folder.path, f"{keyed.log.segments[1].base_offset:020d}.log")
    data = bytearray(path.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    if value is None:
        data[second + 12 : second + 16] = (1).to_bytes(4, "big")
    else:
        data[second + at : second + at + 8] = value.to_bytes(8, "big", signed=True)
    path.write_bytes(data)
    for dirty in (0, keyed.log.segments[2].base_offset):
        keyed.dirty = dirty
        with pytest.raises(CorruptBatch, match=path.name):
            run(keyed.round(keyed.range()))
    assert path.read_bytes() == data


class Meter:
    """A disk that measures the largest read."""

    def __init__(self) -> None:
        self._disk = RealDisk()
        self.largest = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: str, **how: bool) -> Any:
        return MeteredFile(self._disk.open(path, **how), self)


class MeteredFile:
    def __init__(self, file: File, meter: Meter) -> None:
        self._file = file
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pread(self, length: int, position: int) -> bytes:
        self._meter.largest = max(self._meter.largest, length)
        return self._file.pread(length, position)


def test_a_batch_with_a_wrong_length_is_not_read_completely(tmp_path: Path) -> None:
    keyed = KeyedLog.at(tmp_path, segment_bytes=20 << 20, max_message_bytes=4 << 20)
    keyed.write((b"large", bytes(3 << 20)))
    for number in range(10):
        keyed.write((b"%d" % (number % 3), bytes(1 << 20)))
    keyed.log.roll()
    keyed.write((b"key", b"value"))
    meter = Meter()
    keyed.folder.disk = cast(Disk, meter)
    run(keyed.round(keyed.range()))
    assert 3 << 20 < meter.largest < 4 << 20
    path = Path(keyed.folder.path, f"{0:020d}.log")
    data = bytearray(path.read_bytes())
    data[8:12] = (12 << 20).to_bytes(4, "big")
    path.write_bytes(data)
    meter.largest = 0
    with pytest.raises(CorruptBatch, match="checksum"):
        run(keyed.round(keyed.range()))
    assert meter.largest <= 1 << 20


def run(round_: Round) -> None:
    round_.map_keys()
    for _ in round_.new_segments():
        pass


def test_an_interrupted_cleaning_leaves_no_files(tmp_path: Path) -> None:
    keyed = KeyedLog.at(tmp_path)
    for number in range(30):
        keyed.write((b"%d" % (number % 3), b"value" * 10))
    names = keyed.folder.names()
    total: list[int] = []
    whole = keyed.round(keyed.range(), check=total.append)
    whole.map_keys()
    next(whole.new_segments())
    for name in set(keyed.folder.names()) - set(names):
        Path(keyed.folder.path, name).unlink()
    for limit in (1, sum(total) - 1):
        with pytest.raises(InterruptedError):
            run(keyed.round(keyed.range(), check=Stop(limit)))
        assert keyed.folder.names() == names


class Stop:
    """Raises InterruptedError once more than ``limit`` bytes were read or written."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def __call__(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise InterruptedError


@pytest.mark.parametrize("codec", list(Codec))
def test_a_cleaning_does_not_change_headers_and_large_keys(tmp_path: Path, codec: Codec) -> None:
    """This holds also if a delete horizon changes the timestamp delta of each record."""
    keyed = KeyedLog.at(tmp_path, segment_bytes=2 << 20, max_message_bytes=2 << 20, delete_retention_ms=DAY_MS)
    headers = (("trace", b"\0\1"), ("trace", None), ("", b""), ("umlaut ü", b"x" * 300))
    large = b"k" * 300_000
    records = [
        Record(0, 0, b"gone", b"1", headers),
        Record(1, 70, large, b"2", headers),
        Record(2, -5, b"", b"3", headers),
        Record(3, 9, large + b"!", None, headers),
    ]
    data = build_batch(records, base_timestamp=keyed.now, codec=codec)
    keyed.log.append_as_leader(memoryview(bytearray(data)), leader_epoch=LeaderEpoch(0))
    keyed.log.roll()
    keyed.write((b"gone", b"4"))
    keyed.log.roll()
    keyed.write((b"active", b"5"))
    keyed.clean()
    first = keyed.batches()[0]
    assert first.has_delete_horizon and first.codec is codec
    found = list(iter_records(first))
    assert [(one.offset_delta, one.key, one.value, one.headers) for one in found] == [
        (one.offset_delta, one.key, one.value, one.headers) for one in records[1:]
    ]
    assert [timestamp_of(first, one) - keyed.now + 2 for one in found] == [70, -5, 9]
