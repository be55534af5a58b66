"""Finds the bytes that a fetch returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import Offset
from milena.runtime.disk import File
from milena.runtime.network import FileRange
from milena.storage.files.txn_index import AbortedTxn, overlapping

if TYPE_CHECKING:
    from milena.storage.log.local_log import LocalLog


@final
class CopiedSlice:
    """The bytes of a ``LogSlice``, in memory."""

    __slots__ = ("length", "records")

    def __init__(self, records: memoryview, length: int) -> None:
        self.records = records
        self.length = length

    def part(self) -> memoryview:
        return self.records


@final
class LogSlice:
    """Bytes of one segment, beginning with a whole batch; the last batch may be truncated. Empty: no file, length 0."""

    __slots__ = ("file", "length", "position", "segment_base")

    def __init__(self, file: File | None, position: int, length: int, segment_base: Offset) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.segment_base = segment_base

    def part(self) -> FileRange:
        """The part to send. The slice must not be empty."""
        assert self.file is not None
        return FileRange(self.file, self.position, self.length)

    def taken_out(self) -> CopiedSlice:
        """The bytes in memory, without the file. Raises OSError."""
        return CopiedSlice(self.read(), self.length)

    def read(self) -> memoryview:
        """The bytes. Raises OSError."""
        return memoryview(self.file.pread(self.length, self.position)) if self.file is not None else memoryview(b"")


def find_slice(log: LocalLog, offset: Offset, max_bytes: int, upper: Offset, min_one: bool) -> LogSlice:
    """See ``UnifiedLog.read``. Raises KafkaError, CorruptBatch, OSError."""
    segments = log.segments
    index = segments.floor_index(offset)
    if index < 0 or offset < log.log_start_offset or offset > log.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not within {log.log_start_offset}..{log.log_end_offset}"
        )
    if offset < upper:
        for at in range(index, len(segments)):
            segment = segments[at]
            position = segment.position_of(offset)
            if position is None:
                continue
            end = segment.size
            if upper < segments.end_of(at, log.log_end_offset) and (bound := segment.position_of(upper)) is not None:
                end = bound
            length = min(end - position, max_bytes)
            if length < end - position and length < (first := segment.batch_size_at(position)):
                length = min(first, end - position) if min_one else 0
            if length <= 0:
                break
            return LogSlice(segment.file(), position, length, segment.base_offset)
    return LogSlice(None, 0, 0, segments[index].base_offset)


def aborted_between(log: LocalLog, start: Offset, upper: Offset) -> list[AbortedTxn]:
    """The aborted transactions with records in ``[start, upper)``. Raises CorruptIndex, OSError."""
    found: list[AbortedTxn] = []
    for segment in log.segments.since(start):
        some, complete = overlapping(segment.aborted(), start, upper)
        found += some
        if complete:
            break
    return found
