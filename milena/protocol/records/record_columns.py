"""The records of many batches as columns, laid out as Arrow does (int64, and binary with int64 offsets)."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Final, cast, final

from milena.protocol.records.batch import BatchView, CorruptBatch, TimestampType
from milena.protocol.records.record_cursor import DEFAULT_LIMIT, Header, RecordCursor

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1


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

    @property
    def size(self) -> int:
        """Bytes of ``data``."""
        return len(self.data)

    def extend(self, values: list[bytes | None]) -> None:
        """Those of a batch, say: joined while the processor's caches still have them."""
        there = cast(list[bytes], values)
        try:
            self.data += b"".join(there)
            self.present += b"\1" * len(values)
        except TypeError:  # a null is among them, which is rare
            there = [b"" if value is None else value for value in values]
            self.data += b"".join(there)
            self.present += bytes([value is not None for value in values])
        ends = list(accumulate(map(len, there), initial=self.ends.pop()))
        self.ends.fromlist(ends)


@final
class HeaderColumns:
    """The headers of records: those of record n are ``ends[n]`` to ``ends[n + 1]`` of ``names`` and ``values``.

    Names that are not UTF-8 have replacement characters: Arrow has no other strings."""

    __slots__ = ("ends", "names", "values")

    def __init__(self) -> None:
        self.names = BinaryColumn()
        self.values = BinaryColumn()
        self.ends = array("q", (0,))

    def extend(self, headers: list[tuple[Header, ...]]) -> None:
        """Of some records."""
        every = [header for of_one in headers for header in of_one]
        self.names.extend(
            [name.encode(errors="surrogateescape").decode(errors="replace").encode() for name, _ in every]
        )
        self.values.extend([value for _, value in every])
        ends = list(accumulate(map(len, headers), initial=self.ends.pop()))
        self.ends.fromlist(ends)


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
        return self.keys.size + self.values.size

    def add(self, batch: BatchView, limit: int = DEFAULT_LIMIT, first: int = 0, last: int | None = None) -> None:
        """Append the records of a batch that is no control batch, those with offsets from ``first`` to ``last``.

        Raises what ``RecordCursor`` does, and CorruptBatch for an offset or a timestamp of more than 64 bits; then some
        of the batch's records may have been appended.
        """
        cursor = RecordCursor(batch, limit)
        by_broker = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        base_timestamp = batch.max_timestamp if by_broker else batch.base_timestamp
        base_offset = batch.base_offset
        offsets: list[int] = []
        timestamps: list[int] = []
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        headers: list[tuple[Header, ...]] = []
        with_keys, with_values, with_headers = self._with_keys, self._with_values, self._with_headers
        try:
            while cursor.advance():
                # int: compiled, the sum of an i64 would wrap
                offset = base_offset + int(cursor.offset_delta)
                if offset < first or (last is not None and offset > last):
                    continue
                offsets.append(offset)
                timestamps.append(base_timestamp if by_broker else base_timestamp + int(cursor.timestamp_delta))
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
        """Append records, up to the first one whose numbers are too large: then raises CorruptBatch."""
        before, good = len(self.offsets), len(offsets)
        try:
            self.offsets.fromlist(offsets)
            self.timestamps.fromlist(timestamps)
        except OverflowError:
            pairs = zip(offsets, timestamps, strict=True)
            good = [min(pair) >= _LEAST and max(pair) <= _MOST for pair in pairs].index(False)
            del self.offsets[before:]
            self.offsets.fromlist(offsets[:good])
            self.timestamps.fromlist(timestamps[:good])
        self.keys.extend(keys[:good])
        self.values.extend(values[:good])
        if self._with_headers:
            self.headers.extend(headers[:good])
        if good < len(offsets):
            raise CorruptBatch(f"offset {offsets[good]} or timestamp {timestamps[good]} has more than 64 bits")
