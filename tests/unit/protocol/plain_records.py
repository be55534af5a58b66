"""A dumb reader of records, field by field, as an oracle for the fast ones."""

from __future__ import annotations

from milena.protocol.records.batch import CorruptBatch
from milena.protocol.records.record_cursor import Header
from milena.protocol.records.records import Record


class PlainReader:
    """Reads fields from ``data``. Raises CorruptBatch where they are no records."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def records(self, count: int) -> list[Record]:
        if count < 0:
            raise CorruptBatch("a negative count")
        found = [self.record() for _ in range(count)]
        if self.position != len(self.data):
            raise CorruptBatch("bytes follow the last record")
        return found

    def record(self) -> Record:
        length = self.varint()
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise CorruptBatch("a record's length")
        self.take(1)
        timestamp_delta = self.varint(64)
        offset_delta = self.varint()
        key, value = self.field(), self.field()
        count = self.varint()
        if count < 0:
            raise CorruptBatch("a negative number of headers")
        headers = tuple(self.header() for _ in range(count))
        if self.position != end:
            raise CorruptBatch("the fields of a record do not end where it does")
        return Record(offset_delta, timestamp_delta, key, value, headers)

    def header(self) -> Header:
        key = self.field()
        if key is None:
            raise CorruptBatch("a header without a key")
        return key.decode(errors="surrogateescape"), self.field()

    def field(self) -> bytes | None:
        length = self.varint()
        return None if length < 0 else self.take(length)

    def varint(self, bits: int = 32) -> int:
        raw = 0
        for index in range((bits + 6) // 7):
            byte = self.take(1)[0]
            raw += (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                raw %= 1 << bits
                return raw // 2 if raw % 2 == 0 else -(raw // 2) - 1
        raise CorruptBatch("a varint is too long")

    def take(self, length: int) -> bytes:
        taken = self.data[self.position : self.position + length]
        if len(taken) < length:
            raise CorruptBatch("the data end within a record")
        self.position += length
        return taken
