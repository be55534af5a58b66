"""A cursor over the records of a batch, with all checks of Kafka's ``DefaultRecord``.

The cursor is at one record, and its properties decode the key, value and headers on access, so that callers do not pay
for fields that they do not use. Compressed records are decompressed while the cursor advances.

One record: length varint, attributes int8 (unused), timestamp delta varlong, offset delta varint, key
and value as varint length (-1 is null) and bytes, number of headers varint, each header as key (varint
length, UTF-8) and value (varint length, -1 is null). Varints are zigzag encoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias, final

from milena.protocol.records.batch import BatchView, CorruptBatch
from milena.protocol.records.compression import DecompressionBomb
from milena.protocol.records.decompression import decompressed
from milena.protocol.records.varints import MASK_63, decoded, read_raw, read_varint

if TYPE_CHECKING:
    from mypy_extensions import i64

DEFAULT_LIMIT: Final = 64 << 20
"""Default limit of the decompressed bytes of one batch."""
UNLIMITED_RECORD: Final = 2_147_483_639
"""The default of ``max.decompressed.message.bytes``: no record is larger."""

Header: TypeAlias = tuple[str, bytes | None]

_LONGEST_LENGTH: Final = 5
"""Maximum bytes of a 32-bit varint."""


class RecordTooLarge(CorruptBatch):
    """A record of a compressed batch exceeds ``max.decompressed.message.bytes``."""


def too_large(size: int, limit: int) -> str:
    """Kafka's message about a record of ``size`` bytes."""
    return f"Invalid record size: {size} exceeds the configured maximum record size of {limit}."


@final
class RecordCursor:
    """A new cursor is before the first record of ``batch``; ``advance`` moves it to the next record.

    Deltas are relative to the batch's base offset and base timestamp (ms). ``limit``: maximum decompressed bytes of the
    batch, ``longest``: of a record after its length. The constructor raises CorruptBatch for a negative count of
    records. The batch's checksum is not verified.
    """

    __slots__ = (
        "_at",
        "_count",
        "_data",
        "_decompressed",
        "_end",
        "_headers_at",
        "_index",
        "_key_at",
        "_limit",
        "_longest",
        "_pieces",
        "_size",
        "_value_at",
        "header_count",
        "key_length",
        "offset_delta",
        "timestamp_delta",
        "value_length",
    )

    _data: bytes
    _pieces: Iterator[bytes | memoryview] | None
    _size: i64
    _at: i64
    _end: i64
    _count: i64
    _index: i64
    _limit: i64
    _longest: i64
    _decompressed: i64
    _key_at: i64
    _value_at: i64
    _headers_at: i64
    offset_delta: i64
    timestamp_delta: i64
    key_length: i64
    value_length: i64
    header_count: i64

    def __init__(self, batch: BatchView, limit: int = DEFAULT_LIMIT, longest: int = UNLIMITED_RECORD) -> None:
        if batch.count < 0:
            raise CorruptBatch(f"a count of {batch.count} records")
        if batch.is_compressed:
            self._pieces = decompressed(batch.codec, batch.records)
            self._data = b""
        else:
            self._pieces = None
            self._data = bytes(batch.records)
        self._size = len(self._data)
        self._count = batch.count
        self._index = -1
        self._limit = limit
        self._longest = longest if batch.is_compressed else UNLIMITED_RECORD
        self._decompressed = 0
        self._at = 0
        self._end = 0
        self._key_at = 0
        self._value_at = 0
        self._headers_at = 0
        self.offset_delta = 0
        self.timestamp_delta = 0
        self.key_length = -1
        """-1 for a null key, as in Kafka."""
        self.value_length = -1
        """-1 for a null value, a tombstone."""
        self.header_count = 0

    @property
    def key(self) -> bytes | None:
        if self.key_length < 0:
            return None
        return self._data[self._key_at : self._key_at + self.key_length]

    @property
    def value(self) -> bytes | None:
        if self.value_length < 0:
            return None
        return self._data[self._value_at : self._value_at + self.value_length]

    @property
    def headers(self) -> tuple[Header, ...]:
        """The record's headers. Invalid UTF-8 in a header's key becomes surrogate escapes, which are encoded to the
        same bytes again."""
        if not self.header_count:
            return ()
        headers: list[Header] = []
        data = self._data
        at = self._headers_at
        for _ in range(self.header_count):
            length, at = read_varint(data, at)
            key = data[at : at + length].decode(errors="surrogateescape")
            at += length
            length, at = read_varint(data, at)
            if length < 0:
                headers.append((key, None))
            else:
                headers.append((key, data[at : at + length]))
                at += length
        return tuple(headers)

    @property
    def encoded(self) -> bytes:
        """The record's bytes, including its length."""
        return self._data[self._at : self._end]

    def advance(self) -> bool:
        """Move to the next record. Returns False after the last one.

        Raises CorruptBatch if the next record is incomplete or invalid, or if bytes follow the last record,
        DecompressionBomb beyond the limit, and RecordTooLarge for a longer record.
        """
        self._index += 1
        if self._index >= self._count:
            self._index = self._count
            self._expect_end()
            return False
        if self._pieces is not None:
            self._join_record()
        self._at = self._end
        try:
            self._read()
        except IndexError:
            raise CorruptBatch("the records end before the last field") from None
        return True

    def _read(self) -> None:
        """Decode the fields at ``_at``. Varints of one and two bytes are decoded inline, since these are most
        frequent."""
        data = self._data
        at: i64 = self._at
        more: i64
        raw: i64 = data[at]
        at += 1
        if raw >= 0x80:
            raw, at = (raw - 128 + (more << 7), at + 1) if (more := data[at]) < 0x80 else read_raw(data, at - 1)
        start: i64 = at
        end: i64 = at + (raw >> 1)
        if raw >> 1 > self._longest and not raw & 1:
            raise RecordTooLarge(too_large(raw >> 1, self._longest))
        if raw & 1 or end > self._size:
            raise CorruptBatch(f"a record of {decoded(raw)} bytes, but {self._size - at} bytes remain")
        raw = data[at + 1]
        at += 2
        if raw >= 0x80:
            raw, at = (raw - 128 + (more << 7), at + 1) if (more := data[at]) < 0x80 else read_raw(data, at - 1, 64)
        self.timestamp_delta = (raw >> 1 & MASK_63) ^ -(raw & 1)
        raw = data[at]
        at += 1
        if raw >= 0x80:
            raw, at = (raw - 128 + (more << 7), at + 1) if (more := data[at]) < 0x80 else read_raw(data, at - 1)
        self.offset_delta = (raw >> 1) ^ -(raw & 1)
        raw = data[at]
        at += 1
        if raw >= 0x80:
            raw, at = (raw - 128 + (more << 7), at + 1) if (more := data[at]) < 0x80 else read_raw(data, at - 1)
        self._key_at = at
        if raw & 1:
            self.key_length = -1
        else:
            self.key_length = raw >> 1
            at += raw >> 1
        raw = data[at]
        at += 1
        if raw >= 0x80:
            raw, at = (raw - 128 + (more << 7), at + 1) if (more := data[at]) < 0x80 else read_raw(data, at - 1)
        self._value_at = at
        if raw & 1:
            self.value_length = -1
        else:
            self.value_length = raw >> 1
            at += raw >> 1
        raw = data[at]
        at += 1
        if raw >= 0x80:
            raw, at = (raw - 128 + (more << 7), at + 1) if (more := data[at]) < 0x80 else read_raw(data, at - 1)
        if raw & 1:
            raise CorruptBatch(f"a record with {decoded(raw)} headers")
        self.header_count = raw >> 1
        self._headers_at = at
        if raw:
            at = after_headers(data, at, raw >> 1)
        if at != end:
            length: i64 = end - start
            raise CorruptBatch(f"a record of {length} bytes has fields of {length + at - end}")
        self._end = end

    def _join_record(self) -> None:
        """Append decompressed pieces to ``_data`` until it contains the next record, or all pieces are used."""
        if self._size - self._end < _LONGEST_LENGTH:
            self._join(_LONGEST_LENGTH)
        try:
            raw, at = read_raw(self._data, self._end)
        except IndexError:
            return
        if raw >> 1 > self._longest and not raw & 1:
            raise RecordTooLarge(too_large(raw >> 1, self._longest))
        needed: i64 = at - self._end + (raw >> 1)
        if self._size - self._end < needed and not raw & 1:
            self._join(needed)

    def _join(self, needed: i64) -> None:
        """Append pieces until ``needed`` bytes follow the current record, or all pieces are used. Bytes before are
        dropped."""
        if self._pieces is None:
            return
        joined: list[bytes | memoryview] = [self._data[self._end :]]
        size: i64 = self._size - self._end
        while size < needed:
            piece = next(self._pieces, None)
            if piece is None:
                self._pieces = None
                break
            size += len(piece)
            self._decompressed += len(piece)
            if self._decompressed > self._limit:
                raise DecompressionBomb(self._limit)
            joined.append(piece)
        self._data = b"".join(joined)
        self._size = size
        self._end = 0

    def _expect_end(self) -> None:
        while self._pieces is not None and self._size == self._end:
            self._join(1)
        left: i64 = self._size - self._end
        if left:
            raise CorruptBatch(f"{left} bytes follow the last of {self._count} records")


def after_headers(data: bytes, position: i64, count: i64) -> i64:
    """Skip ``count`` headers; return the position after them. Raises CorruptBatch for a header without a key,
    IndexError if the data ends before them."""
    raw: i64
    while count > 0:
        count -= 1
        raw, position = read_raw(data, position)
        if raw & 1:
            raise CorruptBatch("a header without a key")
        raw, position = read_raw(data, position + (raw >> 1))
        if not raw & 1:
            position += raw >> 1
    return position
