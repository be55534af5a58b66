"""The records of many batches as columns, laid out as Arrow does (int64, and binary with int64 offsets)."""

from __future__ import annotations

from array import array
from typing import final

from milena.protocol.records.batch import BatchView, CorruptBatch, TimestampType
from milena.protocol.records.record_cursor import DEFAULT_LIMIT, Header, RecordCursor


@final
class BinaryColumn:
    """Values that are bytes or null. Value n is ``data[ends[n] : ends[n + 1]]``, or null where ``present[n]`` is 0."""

    __slots__ = ("data", "ends", "present")

    def __init__(self) -> None:
        self.data = bytearray()
        self.ends = array("q", (0,))
        self.present = bytearray()

    def __getitem__(self, index: int) -> bytes | None:
        return bytes(self.data[self.ends[index] : self.ends[index + 1]]) if self.present[index] else None

    def append(self, value: bytes | None) -> None:
        if value is None:
            self.present.append(0)
        else:
            self.present.append(1)
            self.data += value
        self.ends.append(len(self.data))


@final
class HeaderColumns:
    """The headers of records: those of record n are ``ends[n]`` to ``ends[n + 1]`` of ``names`` and ``values``.

    Names that are not UTF-8 have replacement characters: Arrow has no other strings."""

    __slots__ = ("ends", "names", "values")

    def __init__(self) -> None:
        self.names = BinaryColumn()
        self.values = BinaryColumn()
        self.ends = array("q", (0,))

    def append(self, headers: tuple[Header, ...]) -> None:
        for name, value in headers:
            self.names.append(name.encode(errors="surrogateescape").decode(errors="replace").encode())
            self.values.append(value)
        self.ends.append(len(self.names.present))


@final
class RecordColumns:
    """Offsets and timestamps (ms) are those of the records, not deltas. Keys, values and headers stay empty where they
    are not wanted."""

    __slots__ = ("_with_headers", "_with_keys", "_with_values", "headers", "keys", "offsets", "timestamps", "values")

    def __init__(self, *, keys: bool = True, values: bool = True, headers: bool = False) -> None:
        self._with_keys = keys
        self._with_values = values
        self._with_headers = headers
        self.offsets = array("q")
        self.timestamps = array("q")
        self.keys = BinaryColumn()
        self.values = BinaryColumn()
        self.headers = HeaderColumns()

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def size(self) -> int:
        """Bytes of keys and values."""
        return len(self.keys.data) + len(self.values.data)

    def add(self, batch: BatchView, limit: int = DEFAULT_LIMIT, first: int = 0, last: int | None = None) -> None:
        """Append the records of a batch that is no control batch, those with offsets from ``first`` to ``last``.

        Raises what ``RecordCursor`` does, and CorruptBatch for an offset or a timestamp of more than 64 bits; then some
        of the batch's records may have been appended.
        """
        cursor = RecordCursor(batch, limit)
        by_broker = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        base_timestamp = batch.max_timestamp if by_broker else batch.base_timestamp
        offsets, timestamps, keys, values = self.offsets, self.timestamps, self.keys, self.values
        with_keys, with_values, with_headers = self._with_keys, self._with_values, self._with_headers
        while cursor.advance():
            # int: compiled, the sum of an i64 would wrap
            offset = batch.base_offset + int(cursor.offset_delta)
            if offset < first or (last is not None and offset > last):
                continue
            timestamp = base_timestamp if by_broker else base_timestamp + int(cursor.timestamp_delta)
            try:
                offsets.append(offset)
                timestamps.append(timestamp)
            except OverflowError:
                del offsets[len(timestamps) :]
                raise CorruptBatch(f"offset {offset} or timestamp {timestamp} has more than 64 bits") from None
            if with_keys:
                keys.append(cursor.key)
            if with_values:
                values.append(cursor.value)
            if with_headers:
                self.headers.append(cursor.headers)
