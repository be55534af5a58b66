"""Batches that a leader refuses, and fields that it assigns (docs/kafka-semantics.md: Produce)."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import BatchView, Codec, TimestampType, iter_batches, pack_batch
from milena.protocol.records.compression import compress
from milena.protocol.records.records import Record, build_batch, iter_records
from milena.protocol.records.validation import MAX_RECORD_ERRORS, InvalidRecords, Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.storage.logs import START_MS, LogFolder, append, batch_of, values_of

HOUR = 3_600_000
EPOCH = LeaderEpoch(0)


def refused(log: UnifiedLog, data: memoryview, origin: Origin = Origin.CLIENT) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(data, leader_epoch=EPOCH, origin=origin)
    assert log.log_end_offset == 0
    return caught.value


def resealed(data: memoryview, at: int, form: str, value: int) -> memoryview:
    """Returns the batch with one header field changed and a valid checksum."""
    struct.pack_into(f">{form}", data, at, value)
    batch = BatchView(data)
    struct.pack_into(">I", data, 17, batch.compute_crc())
    return data


ATTRIBUTES, LAST_OFFSET_DELTA, MAX_TIMESTAMP, COUNT = 21, 23, 35, 57


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: memoryview(bytearray()), ErrorCode.INVALID_RECORD),
        (lambda: batch_of()[:-1], ErrorCode.INVALID_RECORD),
        (lambda: memoryview(bytearray(bytes(batch_of()) * 2)), ErrorCode.INVALID_RECORD),
        (lambda: batch_of(base_offset=Offset(1)), ErrorCode.INVALID_RECORD),
        (lambda: resealed(batch_of(), COUNT, "i", 2), ErrorCode.INVALID_RECORD),
        (lambda: resealed(batch_of(), COUNT, "i", 0), ErrorCode.INVALID_RECORD),
        (lambda: resealed(batch_of(), LAST_OFFSET_DELTA, "i", -2), ErrorCode.INVALID_RECORD),
        (
            lambda: resealed(resealed(batch_of(b"a", b"b"), COUNT, "i", 1), LAST_OFFSET_DELTA, "i", 0),
            ErrorCode.INVALID_RECORD,
        ),
        (lambda: resealed(batch_of(), ATTRIBUTES, "h", 0x20), ErrorCode.INVALID_RECORD),
        (lambda: batch_of(producer=(7, 0, -2)), ErrorCode.INVALID_RECORD),
        (lambda: resealed(batch_of(), ATTRIBUTES, "h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (lambda: batch_of(b"x" * 2000), ErrorCode.MESSAGE_TOO_LARGE),
        (lambda: batch_of(timestamp=START_MS + HOUR + 1), ErrorCode.INVALID_TIMESTAMP),
    ],
    ids=[
        "nothing",
        "a part of a batch",
        "two batches",
        "a base offset",
        "more counted than there",
        "nothing counted",
        "an end before its begin",
        "fewer counted than there",
        "a control batch",
        "a negative sequence",
        "an unknown codec",
        "too large",
        "from the future",
    ],
)
def test_an_invalid_batch_of_a_client_is_refused(
    tmp_path: Path, make: Callable[[], memoryview], code: ErrorCode
) -> None:
    log = LogFolder(tmp_path, max_message_bytes=1000).open()
    assert refused(log, make()).code is code


@pytest.mark.parametrize(("magic", "code"), [(1, ErrorCode.INVALID_RECORD), (3, ErrorCode.CORRUPT_MESSAGE)])
def test_other_formats_are_refused(tmp_path: Path, magic: int, code: ErrorCode) -> None:
    data = batch_of()
    data[16] = magic
    assert refused(LogFolder(tmp_path).open(), data).code is code


@pytest.mark.parametrize("at", [17, 30, 60, 65])
def test_a_wrong_checksum_is_corrupt(tmp_path: Path, at: int) -> None:
    data = batch_of()
    data[at] ^= 0xFF
    assert refused(LogFolder(tmp_path).open(), data).code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, segment_bytes=1000).open()
    assert refused(log, batch_of(b"x" * 2000)).code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_the_error_lists_the_invalid_records(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    error = refused(log, batch_of(b"a", b"b", b"c", timestamp=START_MS + HOUR - 1))
    assert isinstance(error, InvalidRecords)
    assert [one.record for one in error.record_errors] == [2]
    assert "out of range" in error.record_errors[0].message


@pytest.mark.parametrize("codec", list(Codec))
def test_a_record_with_a_timestamp_too_far_in_the_past_is_refused(tmp_path: Path, codec: Codec) -> None:
    log = LogFolder(tmp_path, message_timestamp_before_max_ms=1000).open()
    error = refused(log, batch_of(b"a", b"b", timestamp=START_MS - 1001, codec=codec))
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, InvalidRecords)
    assert [one.record for one in error.record_errors] == [0]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("policy", [("compact",), ("compact", "delete")])
@pytest.mark.parametrize("origin", [Origin.CLIENT, Origin.COORDINATOR])
def test_a_compacted_topic_refuses_records_without_a_key(
    tmp_path: Path, codec: Codec, policy: tuple[str, ...], origin: Origin
) -> None:
    log = LogFolder(tmp_path, cleanup_policy=policy).open()
    error = refused(log, batch_of(b"a", b"b", b"c", keys=(b"k", None, b""), codec=codec), origin)
    assert error.code is ErrorCode.INVALID_RECORD
    assert isinstance(error, InvalidRecords)
    message = "Compacted topic cannot accept message without key in topic partition topic-0"
    assert error.record_errors == ((1, message),)
    assert error.message == (
        "One or more records have been rejected due to 1 record errors in total, and only showing the first three "
        f"errors at most: [RecordError(batchIndex=1, message='{message}')]"
    )
    append(log, b"a", b"b", keys=(b"k", b""), codec=codec)


def test_the_error_counts_all_records_without_a_key(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, cleanup_policy=("compact",), max_message_bytes=1 << 20).open()
    error = refused(log, batch_of(*[b"v"] * 1500))
    assert isinstance(error, InvalidRecords)
    assert len(error.record_errors) == MAX_RECORD_ERRORS
    assert "due to 1500 record errors in total" in (error.message or "")
    assert (error.message or "").count("batchIndex=") == 3


def test_a_follower_of_a_compacted_topic_accepts_records_without_a_key(tmp_path: Path) -> None:
    """The topic may not have been compacted when the leader appended them."""
    log = LogFolder(tmp_path, cleanup_policy=("compact",)).open()
    assert log.append_as_follower(batch_of(b"a", b"b")).last_offset == 1


def test_with_log_append_time_the_broker_sets_the_timestamp_of_the_batch(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, message_timestamp_type="LogAppendTime").open()
    data = batch_of(b"a", timestamp=5)
    info = log.append_as_leader(data, leader_epoch=EPOCH)
    assert (info.log_append_time, info.max_timestamp) == (START_MS, START_MS)
    batch = BatchView(data)
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND_TIME, START_MS)
    assert batch.is_valid


def test_a_batch_of_a_client_with_log_append_time_is_refused(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, message_timestamp_type="LogAppendTime").open()
    error = refused(log, batch_of(timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=START_MS))
    assert error.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_is_stored_in_the_codec_of_the_topic(tmp_path: Path, source: Codec, target: str) -> None:
    log = LogFolder(tmp_path, compression_type=target).open()
    info = append(log, b"one" * 50, b"two", codec=source, producer=(7, 0, 0))
    assert (info.first_offset, info.last_offset) == (0, 1)
    stored = next(iter_batches(log.read_bytes(Offset(0), 1 << 20, upper=Offset(2), min_one=True)))
    assert (
        stored.codec is {"producer": source, "uncompressed": Codec.NONE}.get(target)
        or stored.codec.name.lower() == target
    )
    assert stored.is_valid
    assert (stored.producer_id, stored.base_sequence, stored.leader_epoch) == (7, 0, 0)
    assert [record.timestamp_delta for record in iter_records(stored)] == [0, 1]
    assert values_of(log) == [b"one" * 50, b"two"]
    assert append(log, b"one" * 50, b"two", codec=source, producer=(7, 0, 0)).duplicate


def test_size_is_checked_again_after_recompression(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, compression_type="uncompressed", max_message_bytes=500).open()
    assert refused(log, batch_of(b"x" * 5000, codec=Codec.GZIP)).code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_highly_compressed_batch_is_stored_and_refused_only_if_stored_uncompressed(
    tmp_path: Path,
) -> None:
    data = batch_of(bytes(70 << 20), codec=Codec.ZSTD)
    assert refused(LogFolder(tmp_path / "plain", compression_type="uncompressed").open(), data).code is (
        ErrorCode.MESSAGE_TOO_LARGE
    )
    log = LogFolder(tmp_path / "as it is").open()
    assert log.append_as_leader(data, leader_epoch=EPOCH).last_offset == 0


BODIES: Mapping[str, Callable[[bytes], bytes]] = {
    "more counted than there": lambda body: body[: len(body) // 2],
    "cut short": lambda body: body[:-1],
    "bytes behind the last record": lambda body: body + b"\1",
    "another record behind": lambda body: body * 2,
    "a key beyond its record": lambda body: body[:4] + b"\x7e" + body[5:],
    "zeros": lambda body: bytes(len(body)),
    "nothing": lambda body: b"",
}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("name", list(BODIES))
def test_malformed_records_are_refused_in_every_codec(tmp_path: Path, codec: Codec, name: str) -> None:
    good = BatchView(batch_of(b"first", b"second"))
    body = compress(codec, BODIES[name](bytes(good.records)))
    log = LogFolder(tmp_path).open()
    assert refused(log, rebuilt(good, codec, body)).code is ErrorCode.INVALID_RECORD


def rebuilt(batch: BatchView, codec: Codec, body: bytes, **fields: int) -> memoryview:
    header: dict[str, Any] = {
        "count": batch.count,
        "last_offset_delta": batch.last_offset_delta,
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
    }
    return memoryview(pack_batch(body, codec=codec, **(header | fields)))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
@pytest.mark.parametrize("spoil", [lambda body: b"rubbish", lambda body: body[:-3], lambda body: body + b"\1\2\3"])
def test_a_malformed_compressed_stream_is_refused(
    tmp_path: Path, codec: Codec, spoil: Callable[[bytes], bytes]
) -> None:
    good = BatchView(batch_of(b"first", b"second", codec=codec))
    log = LogFolder(tmp_path).open()
    assert refused(log, rebuilt(good, codec, spoil(bytes(good.records)))).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("claimed", [-1, 0, START_MS + 1, 1 << 62])
def test_the_largest_timestamp_is_computed_from_the_records(tmp_path: Path, codec: Codec, claimed: int) -> None:
    log = LogFolder(tmp_path).open()
    good = BatchView(batch_of(b"a", b"b", b"c", timestamp=START_MS, codec=codec))
    info = log.append_as_leader(rebuilt(good, codec, bytes(good.records), max_timestamp=claimed), leader_epoch=EPOCH)
    assert info.max_timestamp == START_MS + 2
    found = log.max_timestamp_offset()
    assert found is not None and (found.timestamp, found.offset) == (START_MS + 2, 2)
    stored = next(iter_batches(log.read_bytes(Offset(0), 1 << 20, upper=Offset(3), min_one=True)))
    assert stored.is_valid and stored.max_timestamp == START_MS + 2


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("delta", [(1 << 63) - 1, -(1 << 63)])
def test_a_timestamp_beyond_64_bits_is_refused(tmp_path: Path, codec: Codec, delta: int) -> None:
    base = 5 if delta > 0 else -5
    data = build_batch([Record(0, delta, b"k", b"v")], base_timestamp=base, max_timestamp=0, codec=codec)
    assert refused(LogFolder(tmp_path).open(), memoryview(bytearray(data))).code is ErrorCode.INVALID_RECORD


OUT_OF_ORDER = pytest.mark.parametrize("deltas", [(0, 0, 0), (2, 1, 0), (0, 5, 900)])


def numbered(deltas: tuple[int, ...], codec: Codec) -> memoryview:
    records = [Record(delta, at, b"k", b"value %d" % at) for at, delta in enumerate(deltas)]
    data = build_batch(records, base_timestamp=START_MS, codec=codec, last_offset_delta=2)
    return memoryview(bytearray(data))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
@OUT_OF_ORDER
def test_offsets_out_of_order_are_refused_in_compressed_batches(
    tmp_path: Path, codec: Codec, deltas: tuple[int, ...]
) -> None:
    assert refused(LogFolder(tmp_path).open(), numbered(deltas, codec)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(Codec, 2)))
@OUT_OF_ORDER
def test_offset_deltas_are_assigned_in_order_if_the_batch_is_recompressed(
    tmp_path: Path, source: Codec, target: Codec, deltas: tuple[int, ...]
) -> None:
    name = "uncompressed" if target is Codec.NONE else target.name.lower()
    log = LogFolder(tmp_path, compression_type=name).open()
    assert log.append_as_leader(numbered(deltas, source), leader_epoch=EPOCH).last_offset == 2
    stored = next(iter_batches(log.read_bytes(Offset(0), 1 << 20, upper=Offset(3), min_one=True)))
    found = list(iter_records(stored))
    assert stored.codec is target and stored.is_valid
    assert [(record.offset_delta, record.timestamp_delta, record.value) for record in found] == [
        (at, at, b"value %d" % at) for at in range(3)
    ]


def test_record_errors_of_a_compressed_batch_are_bounded(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, cleanup_policy=("compact",)).open()
    error = refused(log, batch_of(*[b""] * 5000, codec=Codec.ZSTD))
    assert isinstance(error, InvalidRecords)
    assert [one.record for one in error.record_errors] == list(range(1000))


def test_batches_of_the_raft_log_are_not_validated(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, max_message_bytes=10).open()
    data = memoryview(bytearray(bytes(batch_of(b"a", b"b")) + bytes(batch_of(b"c"))))
    info = log.append_as_leader(data, leader_epoch=LeaderEpoch(4), origin=Origin.RAFT)
    assert (info.first_offset, info.last_offset) == (0, 2)
    assert [(batch.base_offset, batch.leader_epoch) for batch in iter_batches(data)] == [(0, 4), (2, 4)]


class TestFollower:
    def test_batches_keep_their_offsets_and_leader_epochs(self, tmp_path: Path) -> None:
        log = LogFolder(tmp_path).open()
        one = batch_of(b"a", b"b", base_offset=Offset(0), leader_epoch=LeaderEpoch(1))
        two = batch_of(b"c", base_offset=Offset(5), leader_epoch=LeaderEpoch(2))
        part = batch_of(b"cut", base_offset=Offset(6), leader_epoch=LeaderEpoch(2))[:-3]
        info = log.append_as_follower(memoryview(bytes(one) + bytes(two) + bytes(part)))
        assert (info.first_offset, info.last_offset, log.log_end_offset) == (0, 5, 6)
        assert log.epochs.entries == [(1, 0), (2, 5)]
        assert values_of(log) == [b"a", b"b", b"c"]

    def test_batches_of_a_later_epoch_are_not_appended(self, tmp_path: Path) -> None:
        log = LogFolder(tmp_path).open()
        one = batch_of(b"a", base_offset=Offset(0), leader_epoch=LeaderEpoch(1))
        two = batch_of(b"b", base_offset=Offset(1), leader_epoch=LeaderEpoch(2))
        log.append_as_follower(memoryview(bytes(one) + bytes(two)), leader_epoch=LeaderEpoch(1))
        assert log.log_end_offset == 1
        assert log.append_as_follower(two, leader_epoch=LeaderEpoch(1)).size == 0

    @pytest.mark.parametrize(
        ("offset", "at", "code"), [(0, None, ErrorCode.UNKNOWN_SERVER_ERROR), (1, 64, ErrorCode.CORRUPT_MESSAGE)]
    )
    def test_a_batch_below_the_log_end_or_with_a_wrong_checksum_is_refused(
        self, tmp_path: Path, offset: int, at: int | None, code: ErrorCode
    ) -> None:
        log = LogFolder(tmp_path).open()
        append(log)
        data = batch_of(b"value", base_offset=Offset(offset), leader_epoch=EPOCH)
        if at is not None:
            data[at] ^= 1
        with pytest.raises(KafkaError) as caught:
            log.append_as_follower(data)
        assert caught.value.code is code
        assert log.log_end_offset == 1


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_compressed_record_above_the_decompressed_limit_is_refused(tmp_path: Path, codec: Codec) -> None:
    log = LogFolder(tmp_path, max_decompressed_message_bytes=500).open()
    error = refused(log, batch_of(b"x" * 494, codec=codec))
    assert error.code is ErrorCode.INVALID_RECORD
    assert str(error).endswith("Invalid record size: 501 exceeds the configured maximum record size of 500.")
    append(log, b"x" * 493, codec=codec)


def test_the_decompressed_limit_is_not_that_of_uncompressed_records(tmp_path: Path) -> None:
    log = LogFolder(tmp_path, max_decompressed_message_bytes=500).open()
    append(log, b"x" * 600)
