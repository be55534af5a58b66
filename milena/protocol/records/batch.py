"""The header of a record batch, format v2 (magic 2, KIP-98), read from and written to the batch's bytes.

Layout, big endian: base offset int64, batch length int32 (of the bytes after it), partition leader
epoch int32, magic int8, CRC-32C uint32 (from the attributes to the end), attributes int16, last offset
delta int32, base timestamp int64, max timestamp int64, producer id int64, producer epoch int16, base
sequence int32, record count int32. Attributes: bits 0-2 codec, 3 timestamp type, 4 transactional,
5 control, 6 delete horizon. The CRC does not cover the base offset and the leader epoch, so that a
leader can set them in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, TypedDict

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.crc import crc32c
from milena.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerEpoch, ProducerId

HEADER_SIZE: Final = 61
"""Bytes of a batch before its records."""
LOG_OVERHEAD: Final = 12
"""Bytes of a batch that its length field does not include."""
MAGIC: Final = 2

FIRST_OFFSET: Final = Offset(0)
NO_TIMESTAMP: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)

_SHORTEST_MESSAGE: Final = 14
"""The length of a message of format 0 without key and value."""

_HEADER: Final = Struct(">qiibIhiqqqhii")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35

_INT32: Final = Struct(">i")
_BASE: Final = Struct(">qii")
_CRC_AND_ATTRIBUTES: Final = Struct(">Ih")
_INT64: Final = Struct(">q")

_CODEC_MASK: Final = 0x07
TIME_OF_APPEND: Final = 0x08
"""Attribute of a batch with LogAppendTime."""
_TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
"""Attribute of a batch with control records."""
_DELETE_HORIZON: Final = 0x40


class CorruptBatch(ValueError):
    """The bytes are not a valid record batch: a wrong length, magic, checksum, count or record."""


class UnsupportedMagic(CorruptBatch):
    """A batch of another format version than 2. Its other fields cannot be read."""


class MalformedRecords(KafkaError):
    """The bytes are not valid batches of the current format, or not exactly one. Kafka refuses these before it looks at
    the log."""


class Codec(IntEnum):
    """Compression codecs, by the number in a batch's attributes (Kafka's ``CompressionType``)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """The clock of a batch's timestamps: the producer's or the broker's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchView:
    """One batch with a decoded header; its records are not decoded.

    ``memory`` is exactly the batch. ``assign`` and ``set_max_timestamp`` write to it, so it must be writable for them.
    Lengths are in bytes, timestamps in ms; ``-1`` means no producer, sequence or timestamp.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "count",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "memory",
        "producer_epoch",
        "producer_id",
    )

    memory: memoryview
    base_offset: Offset
    batch_length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    count: int

    def __init__(self, memory: memoryview) -> None:
        """Decode the header of the batch at the start of ``memory``; bytes after the batch are ignored.

        Raises CorruptBatch for an impossible length, UnsupportedMagic for another format.
        """
        size = batch_size_at(memory, 0)
        if size is None or size > len(memory):
            raise CorruptBatch(f"a batch of {size} bytes in {len(memory)} bytes")
        self.memory = memory if size == len(memory) else memory[:size]
        (
            self.base_offset,
            self.batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = _HEADER.unpack_from(memory)

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def record_count(self) -> int:
        """The same as ``count``: the name that other decoded headers use."""
        return self.count

    @property
    def records(self) -> memoryview:
        """The bytes of the records, compressed with ``codec``."""
        return self.memory[HEADER_SIZE:]

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        """The offset of the record after this batch."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """The producer's sequence of the last record; sequences wrap from 2**31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def codec(self) -> Codec:
        """The codec. Raises CorruptBatch for an unknown number."""
        number = self.attributes & _CODEC_MASK
        if number > Codec.ZSTD:
            raise CorruptBatch(f"codec {number} in the attributes is unknown")
        return Codec(number)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & _CODEC_MASK != 0

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIME_OF_APPEND else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the delete horizon, the time after which tombstones may be removed
        (KIP-534)."""
        return self.attributes & _DELETE_HORIZON != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    def compute_crc(self) -> int:
        """Return the checksum of the batch's bytes."""
        return crc32c(self.memory[_ATTRIBUTES_AT:])

    @property
    def is_valid(self) -> bool:
        """Whether the checksum in the header is correct."""
        return self.crc == crc32c(self.memory[_ATTRIBUTES_AT:])

    def verify_crc(self) -> None:
        """Raise CorruptBatch if the checksum is wrong."""
        computed = self.compute_crc()
        if computed != self.crc:
            raise CorruptBatch(f"the batch at offset {self.base_offset} has checksum {computed}, not {self.crc}")

    def assign(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """Write base offset and leader epoch, which the checksum does not cover."""
        _BASE.pack_into(self.memory, 0, base_offset, self.batch_length, leader_epoch)
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch

    def set_max_timestamp(self, timestamp_type: TimestampType, timestamp: int) -> None:
        """Write the timestamp type, the batch's largest timestamp (ms), and the new checksum.

        With LOG_APPEND_TIME all records have this timestamp (``protocol.records.records.timestamp_of``).
        """
        attributes = self.attributes & ~TIME_OF_APPEND
        if timestamp_type is TimestampType.LOG_APPEND_TIME:
            attributes |= TIME_OF_APPEND
        if attributes == self.attributes and timestamp == self.max_timestamp:
            return
        _INT64.pack_into(self.memory, _MAX_TIMESTAMP_AT, timestamp)
        _CRC_AND_ATTRIBUTES.pack_into(self.memory, _CRC_AT, 0, attributes)
        self.attributes = attributes
        self.max_timestamp = timestamp
        self.crc = self.compute_crc()
        _CRC_AND_ATTRIBUTES.pack_into(self.memory, _CRC_AT, self.crc, attributes)

    def with_records(self, records: bytearray, codec: Codec, *, max_timestamp: int) -> BatchView:
        """Return a batch with CreateTime and the same header otherwise, and ``records``, which are the same number and
        compressed with ``codec``."""
        packed = pack_batch(
            records,
            codec=codec,
            count=self.count,
            last_offset_delta=self.last_offset_delta,
            base_timestamp=self.base_timestamp,
            max_timestamp=max_timestamp,
            transactional=self.is_transactional,
            control=self.is_control,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
        )
        return BatchView(memoryview(packed))

    def __repr__(self) -> str:
        return (
            f"BatchView(offsets {self.base_offset}..{self.last_offset}, epoch {self.leader_epoch}, "
            f"{self.count} records, {self.size_in_bytes} bytes)"
        )


def batch_size_at(data: memoryview, position: int) -> int | None:
    """Return the size in bytes of the batch at ``position``; None if ``data`` ends before the end of its header.

    The batch may reach beyond ``data``. Raises CorruptBatch for a length below that of a header, and UnsupportedMagic
    for another format than 2, whose messages may be shorter.
    """
    available = len(data) - position
    if available >= LOG_OVERHEAD:
        length: int = _INT32.unpack_from(data, position + _LENGTH_AT)[0]
        if length >= _SHORTEST_MESSAGE and available > _MAGIC_AT and data[position + _MAGIC_AT] != MAGIC:
            raise UnsupportedMagic(f"batch format {data[position + _MAGIC_AT]} is not {MAGIC}")
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise CorruptBatch(f"a batch length of {length} bytes is less than a header's")
        if available >= HEADER_SIZE:
            return length + LOG_OVERHEAD
    return None


def iter_batches(data: memoryview) -> Iterator[BatchView]:
    """Yield each complete batch in ``data``, in order; an incomplete one at the end is ignored.

    Raises CorruptBatch for bytes that are not a batch. Checksums are not verified.
    """
    position = 0
    end = len(data)
    while position < end and (size := batch_size_at(data, position)) is not None and size <= end - position:
        yield BatchView(data[position : position + size])
        position += size


def split_batches(records: memoryview) -> list[BatchView]:
    """Return the complete batches in ``records``.

    Raises MalformedRecords: CORRUPT_MESSAGE, or INVALID_RECORD for the older formats.
    """
    size = len(records)
    try:
        if size >= HEADER_SIZE and _INT32.unpack_from(records, _LENGTH_AT)[0] == size - LOG_OVERHEAD:
            return [BatchView(records)]
        return list(iter_batches(records))
    except UnsupportedMagic as magic:
        old = records[_MAGIC_AT] < MAGIC
        raise MalformedRecords(ErrorCode.INVALID_RECORD if old else ErrorCode.CORRUPT_MESSAGE, str(magic)) from magic
    except CorruptBatch as error:
        raise MalformedRecords(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def single_batch(records: memoryview) -> BatchView:
    """Return the only batch in ``records``. Raises MalformedRecords as ``split_batches``, and INVALID_RECORD if there
    is not exactly one."""
    batches = split_batches(records)
    if len(batches) != 1:
        raise MalformedRecords(
            ErrorCode.INVALID_RECORD, f"exactly one record batch is expected, there are {len(batches)}"
        )
    return batches[0]


class BatchHeader(TypedDict, total=False):
    """Optional fields of a batch's header: keyword arguments of ``pack_batch``."""

    leader_epoch: LeaderEpoch
    transactional: bool
    control: bool
    delete_horizon: bool
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int


def pack_batch(
    records: bytes | bytearray | memoryview,
    *,
    count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: Offset = FIRST_OFFSET,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """Return a batch of ``records``, which must be encoded and compressed with ``codec`` already."""
    attributes = codec | (timestamp_type << 3) | (_TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    if delete_horizon:
        attributes |= _DELETE_HORIZON
    batch = bytearray(HEADER_SIZE)
    batch += records
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    crc = crc32c(memoryview(batch)[_ATTRIBUTES_AT:])
    _CRC_AND_ATTRIBUTES.pack_into(batch, _CRC_AT, crc, attributes)
    return batch
