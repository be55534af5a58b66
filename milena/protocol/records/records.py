"""Record objects, and building batches of them. ``protocol.records.record_cursor`` reads records without creating
objects, ``protocol.records.record_scan`` only validates them. In a compressed batch all records together are one
compressed stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Unpack, final

from milena.protocol.records.batch import (
    FIRST_OFFSET,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    BatchView,
    Codec,
    TimestampType,
    pack_batch,
)
from milena.protocol.records.compression import compress
from milena.protocol.records.record_cursor import DEFAULT_LIMIT, UNLIMITED_RECORD, Header, RecordCursor
from milena.protocol.records.varints import write_varint
from milena.protocol.types import Offset

_INT64: Final = 1 << 64
_RECORD_OVERHEAD: Final = 21
"""Maximum bytes of a record without its key, value and headers (``DefaultRecord.MAX_RECORD_OVERHEAD``)."""


@final
class Record:
    """One record, with offset and timestamp relative to its batch.

    Invalid UTF-8 in a header's key is represented by surrogate escapes, which are encoded to the same bytes again.
    """

    __slots__ = ("headers", "key", "offset_delta", "timestamp_delta", "value")

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    def __init__(
        self,
        offset_delta: int,
        timestamp_delta: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...] = (),
    ) -> None:
        self.offset_delta = offset_delta
        self.timestamp_delta = timestamp_delta
        self.key = key
        self.value = value
        self.headers = headers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return (
            f"Record(offset_delta={self.offset_delta}, timestamp_delta={self.timestamp_delta}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )

    def _fields(self) -> tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]:
        return self.offset_delta, self.timestamp_delta, self.key, self.value, self.headers


def offset_of(batch: BatchView, record: Record) -> Offset:
    """Return the record's offset in the log."""
    return Offset(batch.base_offset + record.offset_delta)


def timestamp_of(batch: BatchView, record: Record) -> int:
    """Return the record's timestamp in ms: the producer's, or the broker's with LOG_APPEND_TIME; -1 for none."""
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return batch.max_timestamp
    return as_long(batch.base_timestamp + record.timestamp_delta)


def as_long(number: int) -> int:
    """Wrap ``number``, a sum or difference of two Java longs, to 64 bits as in Java."""
    return (number + (_INT64 >> 1)) % _INT64 - (_INT64 >> 1)


def iter_records(batch: BatchView, limit: int = DEFAULT_LIMIT, longest: int = UNLIMITED_RECORD) -> Iterator[Record]:
    """Yield the records of the batch, in order.

    ``limit``: maximum decompressed bytes, ``longest``: of one record. Raises CorruptBatch for invalid records or
    another number than in the header, DecompressionBomb and RecordTooLarge beyond the limits. The checksum is not
    verified.
    """
    cursor = RecordCursor(batch, limit, longest)
    while cursor.advance():
        yield Record(cursor.offset_delta, cursor.timestamp_delta, cursor.key, cursor.value, cursor.headers)


class BatchBuilder:
    """Builds one batch of records with the offset deltas 0, 1, 2, ..."""

    def __init__(self) -> None:
        self._records = bytearray()
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self.count = 0

    @property
    def size(self) -> int:
        """Bytes of the batch so far, uncompressed."""
        return HEADER_SIZE + len(self._records)

    def has_room_for(self, key: bytes | None, value: bytes | None, limit: int) -> bool:
        """Whether the batch certainly stays within ``limit`` bytes if a record without headers is added."""
        return self.size + _RECORD_OVERHEAD + len(key or b"") + len(value or b"") <= limit

    def append(
        self,
        *,
        timestamp: int,
        value: bytes | None,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
    ) -> None:
        """Add a record. ``timestamp`` is in ms."""
        if not self.count:
            self._base_timestamp = timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        _write_record(self._records, Record(self.count, timestamp - self._base_timestamp, key, value, tuple(headers)))
        self.count += 1

    def build(
        self,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        base_offset: Offset = FIRST_OFFSET,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        **header: Unpack[BatchHeader],
    ) -> bytes:
        """Return the batch. ``level``: the codec's compression level, None for Kafka's default."""
        return bytes(
            pack_batch(
                compress(codec, self._records, level),
                codec=codec,
                count=self.count,
                last_offset_delta=self.count - 1,
                base_timestamp=self._base_timestamp,
                max_timestamp=self._max_timestamp,
                base_offset=base_offset,
                timestamp_type=timestamp_type,
                **header,
            )
        )


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: Offset = FIRST_OFFSET,
    base_timestamp: int = NO_TIMESTAMP,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    max_timestamp: int | None = None,
    last_offset_delta: int | None = None,
    **header: Unpack[BatchHeader],
) -> bytes:
    """Return a batch of ``records``, whose deltas are relative to ``base_offset`` and ``base_timestamp`` (ms).

    ``max_timestamp`` defaults to the largest of the records, ``last_offset_delta`` to that of the last record; a
    compacted batch keeps its original one.
    """
    encoded = bytearray()
    count = 0
    last = Record(-1, 0, None, None)
    largest = NO_TIMESTAMP
    for last in records:
        _write_record(encoded, last)
        largest = max(largest, base_timestamp + last.timestamp_delta)
        count += 1
    return bytes(
        pack_batch(
            compress(codec, encoded, level),
            codec=codec,
            count=count,
            last_offset_delta=last.offset_delta if last_offset_delta is None else last_offset_delta,
            base_timestamp=base_timestamp,
            max_timestamp=largest if max_timestamp is None else max_timestamp,
            base_offset=base_offset,
            timestamp_type=timestamp_type,
            **header,
        )
    )


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
    else:
        write_varint(out, len(value))
        out += value


def _write_record(out: bytearray, record: Record) -> None:
    body = bytearray(1)
    write_varint(body, record.timestamp_delta)
    write_varint(body, record.offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_bytes(body, key.encode(errors="surrogateescape"))
        _write_bytes(body, value)
    write_varint(out, len(body))
    out += body
