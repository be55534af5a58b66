"""The records of many batches as columns, laid out as Arrow does (int64, and binary with int64 offsets)."""

from __future__ import annotations

from array import array
from typing import final

from milena.protocol.records.batch import BatchView, CorruptBatch, TimestampType
from milena.protocol.records.record_cursor import DEFAULT_LIMIT, RecordCursor


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
class RecordColumns:
    """Offsets and timestamps (ms) are those of the records, not deltas."""

    __slots__ = ("keys", "offsets", "timestamps", "values")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.timestamps = array("q")
        self.keys = BinaryColumn()
        self.values = BinaryColumn()

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, batch: BatchView, limit: int = DEFAULT_LIMIT) -> None:
        """Append the records of a batch that is no control batch.

        Raises what ``RecordCursor`` does, and CorruptBatch for an offset or a timestamp of more than 64 bits; then some
        of the batch's records may have been appended.
        """
        cursor = RecordCursor(batch, limit)
        by_broker = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        base_timestamp = batch.max_timestamp if by_broker else batch.base_timestamp
        offsets, timestamps, keys, values = self.offsets, self.timestamps, self.keys, self.values
        while cursor.advance():
            # int: compiled, the sum of an i64 would wrap
            offset = batch.base_offset + int(cursor.offset_delta)
            timestamp = base_timestamp if by_broker else base_timestamp + int(cursor.timestamp_delta)
            try:
                offsets.append(offset)
                timestamps.append(timestamp)
            except OverflowError:
                del offsets[len(timestamps) :]
                raise CorruptBatch(f"offset {offset} or timestamp {timestamp} has more than 64 bits") from None
            keys.append(cursor.key)
            values.append(cursor.value)
