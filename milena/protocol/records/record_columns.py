"""The records of many batches as columns in Arrow's layout (int64, and binary with int64 offsets)."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Final, cast, final

from milena.protocol.records.batch import BatchView, CorruptBatch, TimestampType
from milena.protocol.records.record_cursor import DEFAULT_LIMIT, Header, RecordCursor

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1


@final
class BinaryColumn:
    """Values that are bytes or null. Value n is ``data[ends[n] : ends[n + 1]]``, or null if ``present[n]`` is 0."""

    __slots__ = ("data", "ends", "present")

    def __init__(self) -> None:
        self.data = bytearray()
        self.ends = array("q", (0,))
        self.present = bytearray()

    def __getitem__(self, index: int) -> bytes | None:
        return bytes(self.data[self.ends[index] : self.ends[index + 1]]) if self.present[index] else None

    @property
    def size(self) -> int:
        """Bytes of ``data``."""
        return len(self.data)

    def extend(self, values: list[bytes | None]) -> None:
        """Append ``values``. Call it for each batch, while its values are in the processor's caches."""
        present = cast(list[bytes], values)
        try:
            self.data += b"".join(present)
            self.present += b"\1" * len(values)
        except TypeError:  # a value is null, which is rare
            present = [b"" if value is None else value for value in values]
            self.data += b"".join(present)
            self.present += bytes([value is not None for value in values])
        ends = list(accumulate(map(len, present), initial=self.ends.pop()))
        self.ends.fromlist(ends)


@final
class HeaderColumns:
    """The headers of records: record n has ``names`` and ``values`` from ``ends[n]`` to ``ends[n + 1]``.

    Invalid UTF-8 in names is replaced, since Arrow's strings are UTF-8."""

    __slots__ = ("ends", "names", "values")

    def __init__(self) -> None:
        self.names = BinaryColumn()
        self.values = BinaryColumn()
        self.ends = array("q", (0,))

    def extend(self, headers: list[tuple[Header, ...]]) -> None:
        """Append the headers of records, a tuple for each."""
        flat = [header for of_record in headers for header in of_record]
        self.names.extend([name.encode(errors="surrogateescape").decode(errors="replace").encode() for name, _ in flat])
        self.values.extend([value for _, value in flat])
        ends = list(accumulate(map(len, headers), initial=self.ends.pop()))
        self.ends.fromlist(ends)


@final
class RecordColumns:
    """Columns of offsets, timestamps (ms), keys, values and headers. Keys, values and headers are collected only if the
    arguments say so."""

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
        return self.keys.size + self.values.size

    def add(self, batch: BatchView, limit: int = DEFAULT_LIMIT, first: int = 0, last: int | None = None) -> None:
        """Append the records of a batch, not a control batch, with offsets from ``first`` to ``last`` (inclusive).

        Raises the errors of ``RecordCursor``, and CorruptBatch for an offset or timestamp of more than 64 bits. Some of
        the batch's records may have been appended before an error.
        """
        cursor = RecordCursor(batch, limit)
        log_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        base_timestamp = batch.max_timestamp if log_append_time else batch.base_timestamp
        base_offset = batch.base_offset
        offsets: list[int] = []
        timestamps: list[int] = []
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        headers: list[tuple[Header, ...]] = []
        with_keys, with_values, with_headers = self._with_keys, self._with_values, self._with_headers
        try:
            while cursor.advance():
                # int(): in compiled code a sum of i64 would wrap around
                offset = base_offset + int(cursor.offset_delta)
                if offset < first or (last is not None and offset > last):
                    continue
                offsets.append(offset)
                timestamps.append(base_timestamp if log_append_time else base_timestamp + int(cursor.timestamp_delta))
                if with_keys:
                    keys.append(cursor.key)
                if with_values:
                    values.append(cursor.value)
                if with_headers:
                    headers.append(cursor.headers)
        finally:
            self._extend(offsets, timestamps, keys, values, headers)

    def _extend(
        self,
        offsets: list[int],
        timestamps: list[int],
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: list[tuple[Header, ...]],
    ) -> None:
        """Append records. At the first one with a number of more than 64 bits, raise CorruptBatch."""
        before, valid = len(self.offsets), len(offsets)
        try:
            self.offsets.fromlist(offsets)
            self.timestamps.fromlist(timestamps)
        except OverflowError:
            pairs = zip(offsets, timestamps, strict=True)
            valid = [min(pair) >= _MIN_INT64 and max(pair) <= _MAX_INT64 for pair in pairs].index(False)
            del self.offsets[before:]
            self.offsets.fromlist(offsets[:valid])
            self.timestamps.fromlist(timestamps[:valid])
        self.keys.extend(keys[:valid])
        self.values.extend(values[:valid])
        if self._with_headers:
            self.headers.extend(headers[:valid])
        if valid < len(offsets):
            raise CorruptBatch(f"offset {offsets[valid]} or timestamp {timestamps[valid]} has more than 64 bits")
