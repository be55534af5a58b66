"""One segment of a log, like Kafka's ``LogSegment``: the log file, its offset and time index, its transaction index.

A segment opens its file on use, and closes it if too many files are open (``HandleCache``). A closed segment keeps only
its path, size and largest timestamp in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from milena.config.topic_config import TopicConfig
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchView
from milena.protocol.records.record_cursor import UNLIMITED_RECORD
from milena.protocol.records.records import iter_records, offset_of, timestamp_of
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.disk import Bytes, File
from milena.storage.files.names import DELETED, LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, TIME_INDEX, TXN_INDEX, segment_file
from milena.storage.files.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from milena.storage.files.offset_index import OffsetIndex
from milena.storage.files.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from milena.storage.files.time_index import NO_TIMESTAMP, TimedOffset, TimeIndex
from milena.storage.files.txn_index import (
    AbortedTxn,
    append_aborted,
    read_aborted,
    read_last_aborted,
    read_overlapping,
    truncate_aborted,
)
from milena.storage.log.batch_scan import LOOKUP_CHUNK, read_batch, scan_batches
from milena.storage.log.context import LogContext

MAX_RELATIVE_OFFSET: Final = (1 << 31) - 1
_RECENT: Final = 32


class Batch(Protocol):
    """The part of ``BatchView`` and ``ScannedBatch`` that a segment needs."""

    @property
    def base_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...

    @property
    def batch_length(self) -> int: ...

    @property
    def record_count(self) -> int: ...


class SegmentEnd(NamedTuple):
    """The end of a segment after a truncation."""

    offset: Offset
    """The offset of the next record."""
    position: int | None
    """The new size of the log file, None if it is not truncated."""
    largest: TimedOffset
    """The largest timestamp of the remaining records."""


class TimedRecord(NamedTuple):
    """A record's offset with its timestamp (ms) and the leader epoch of its batch."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch | None


def first_in_batch(
    batch: BatchView, timestamp: int, start: Offset, longest: int = UNLIMITED_RECORD
) -> TimedRecord | None:
    """Return the first record of ``batch`` from ``start`` on whose timestamp (ms) is ``timestamp`` or later, None if
    there is none. Raises CorruptBatch, RecordTooLarge if a record before it has more than ``longest`` bytes."""
    for record in iter_records(batch, longest=longest):
        if timestamp_of(batch, record) >= timestamp and offset_of(batch, record) >= start:
            epoch = batch.leader_epoch if batch.leader_epoch >= 0 else None
            return TimedRecord(timestamp_of(batch, record), offset_of(batch, record), epoch)
    return None


class Segment:
    """Records from ``base_offset`` on. Methods raise OSError if the disk fails."""

    __slots__ = (
        "_file",
        "_first_timestamp",
        "_indexes_exist",
        "_largest",
        "_last_aborted",
        "_offset_index",
        "_recent",
        "_since_index",
        "_time_index",
        "_unwritten",
        "base_offset",
        "context",
        "created_ms",
        "folder",
        "roll_jitter_ms",
        "size",
    )

    def __init__(
        self, context: LogContext, folder: str, base_offset: Offset, *, size: int, indexes_exist: bool
    ) -> None:
        """``size``: bytes of the log file, 0 for a new one; ``indexes_exist``: whether both index files exist."""
        self.context = context
        self._last_aborted: int | None = None
        """The offset of the last abort marker, -1 without one; None if unknown. This saves a disk access for each fetch
        with read_committed that begins after it."""
        self.folder = folder
        self.base_offset = base_offset
        self.size = size
        self.created_ms = context.clock.time_ms()
        self.roll_jitter_ms = 0
        self._indexes_exist = indexes_exist
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._largest: TimedOffset | None = None if size else TimedOffset(NO_TIMESTAMP, base_offset)
        self._first_timestamp: int | None = None
        self._recent: dict[int, int] | None = None
        self._since_index = 0
        self._unwritten = not indexes_exist
        """Whether the index files are out of date, or lack the largest timestamp at the end."""

    @classmethod
    def create(cls, context: LogContext, folder: str, base_offset: Offset, config: TopicConfig) -> Segment:
        """Create an empty segment. A log file of the same name from an earlier attempt is emptied."""
        segment = cls(context, folder, base_offset, size=0, indexes_exist=False)
        bound = min(config.segment_jitter_ms, config.segment_ms)
        segment.roll_jitter_ms = context.jitter(bound) if bound else 0
        file = context.disk.open(segment.path(LOG), create=True)
        try:
            if file.size:
                file.truncate(0)
        finally:
            file.close()
        return segment

    def path(self, suffix: str) -> str:
        return f"{self.folder}/{segment_file(self.base_offset, suffix)}"

    def moved_to(self, folder: str) -> None:
        """The folder has been renamed; open handles stay valid."""
        self.folder = folder
        for index, suffix in ((self._offset_index, OFFSET_INDEX), (self._time_index, TIME_INDEX)):
            if index is not None:
                index.path = self.path(suffix)

    def file(self) -> File:
        """The log file, opened if necessary."""
        file = self._file
        if file is not None:
            self.context.files.used(self)
            return file
        file = self._file = self.context.disk.open(self.path(LOG))
        self.context.files.opened(self)
        return file

    def release_handle(self) -> None:
        self._file = None

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            path = self.path(OFFSET_INDEX)
            context = self.context
            self._offset_index = OffsetIndex(
                context.disk, context.maps, path, self.base_offset, exists=self._indexes_exist
            )
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            path = self.path(TIME_INDEX)
            context = self.context
            self._time_index = TimeIndex(context.disk, context.maps, path, self.base_offset, exists=self._indexes_exist)
        return self._time_index

    @property
    def largest(self) -> TimedOffset:
        """The largest timestamp and the last offset of its batch; (-1, base offset) for none."""
        if self._largest is None:
            self._largest = self.time_index.last
        return self._largest

    def largest_timestamp(self) -> int:
        """That of the records or, if they have none, of the file's last change (ms)."""
        largest = self.largest.timestamp
        return largest if largest >= 0 else self.context.disk.modified_ms(self.path(LOG))

    # Appending

    def append(self, data: Bytes, batches: Sequence[Batch], interval: int) -> None:
        """Append ``data``, which contains ``batches``. Adds an index entry for about every ``interval`` bytes."""
        if not self._indexes_exist:
            self._make_indexes()
        position = self.file().append((data,))
        if position != self.size:
            raise BrokenInvariant(f"{self.path(LOG)} had {position} bytes where {self.size} were appended")
        for batch in batches:
            self.note(batch, position, interval)
            position += batch.batch_length + LOG_OVERHEAD
        self.size = position

    def note(self, batch: Batch, position: int, interval: int) -> None:
        """Update the indexes for a batch at ``position``."""
        last = batch.last_offset
        if not position:
            self._first_timestamp = batch.max_timestamp
        if batch.max_timestamp > self.largest.timestamp and batch.record_count:  # compaction may have emptied it
            self._largest = TimedOffset(batch.max_timestamp, last)
        self._unwritten = True
        if self._since_index > interval:
            self.offset_index.add(last, position)
            self.time_index.add(self.largest)
            self._since_index = 0
        self._since_index += batch.batch_length + LOG_OVERHEAD
        recent = self._recent
        if recent is None:
            recent = self._recent = {}
        elif len(recent) >= _RECENT:
            del recent[next(iter(recent))]
        recent[batch.base_offset] = position

    def must_roll(self, *, size: int, last_offset: int, max_timestamp: int, now: int, config: TopicConfig) -> bool:
        """Whether an append of ``size`` bytes up to ``last_offset`` needs a new segment, like
        ``LogSegment.shouldRoll``."""
        if self.size > config.segment_bytes - size or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if not self.size:
            return False
        if self._waited(max_timestamp, now) > config.longest_segment_ms - self.roll_jitter_ms:
            return True
        limit = config.segment_index_bytes
        return (
            len(self.offset_index) >= limit // OFFSET_ENTRY_SIZE or len(self.time_index) >= limit // TIME_ENTRY_SIZE - 1
        )

    def _waited(self, timestamp: int, now: int) -> int:
        """Return the age of the segment (ms), by the timestamp of the first batch, or by the clock if it has none."""
        first_timestamp = self.first_timestamp()
        return timestamp - first_timestamp if first_timestamp >= 0 else now - self.created_ms

    def first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch (ms), -1 for none. The segment must not be empty. Raises
        CorruptBatch."""
        if self._first_timestamp is None:
            first = next(scan_batches(self.file(), 0, self.size, chunk=LOOKUP_CHUNK))
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    def add_aborted(self, entry: AbortedTxn) -> None:
        """Add an entry to the transaction index."""
        self._last_aborted = entry.last_offset
        append_aborted(self.context.disk, self.path(TXN_INDEX), entry)

    def aborted(self) -> list[AbortedTxn]:
        """Return the entries of the transaction index. Raises CorruptIndex."""
        aborted = read_aborted(self.context.disk, self.path(TXN_INDEX))
        self._last_aborted = aborted[-1].last_offset if aborted else -1
        return aborted

    def aborted_in(self, start: Offset, upper: Offset) -> tuple[list[AbortedTxn], bool]:
        """Return the transactions of the transaction index with records in ``[start, upper)``, and whether there can be
        no more of them in later segments. Raises CorruptIndex."""
        if self._last_aborted is None:
            self._last_aborted = read_last_aborted(self.context.disk, self.path(TXN_INDEX))
        if start > self._last_aborted:
            return [], False
        return read_overlapping(self.context.disk, self.path(TXN_INDEX), start, upper)

    def offset_after(self, position: int) -> Offset | None:
        """Return an offset after the records before ``position``: the first one in the offset index that is at
        ``position`` or later. None if there is none."""
        offset = self.offset_index.first_after_position(position)
        return None if offset is None else Offset(offset)

    # Finding

    def position_of(self, offset: int) -> int | None:
        """Return the position of the first batch that ends at ``offset`` or later, None if there is none.

        Raises CorruptBatch if the file is damaged.
        """
        if self._recent is not None and (position := self._recent.get(offset)) is not None:
            return position
        if not self.size:
            return None
        start = self.offset_index.lookup(offset)
        for batch in scan_batches(self.file(), start, self.size, chunk=LOOKUP_CHUNK):
            if batch.last_offset >= offset:
                return batch.position
        return None

    def batch_size_at(self, position: int) -> int:
        """Return the size (bytes) of the batch at ``position``. Raises CorruptBatch if there is none."""
        return next(scan_batches(self.file(), position, self.size, chunk=HEADER_SIZE)).size

    def next_offset(self) -> Offset:
        """Return the offset after the last record. Reads headers from the last index entry on."""
        index = self.offset_index
        start = index[len(index) - 1][1] if len(index) else 0
        end = int(self.base_offset)
        if self.size:
            for batch in scan_batches(self.file(), start, self.size, chunk=LOOKUP_CHUNK):
                end = batch.last_offset + 1
        return Offset(end)

    def find_by_timestamp(self, timestamp: int, start: Offset, longest: int = UNLIMITED_RECORD) -> TimedRecord | None:
        """Return the first record from ``start`` on whose timestamp (ms) is ``timestamp`` or later, None if there is
        none. Raises CorruptBatch, RecordTooLarge (see ``first_in_batch``)."""
        offset = max(self.time_index.lookup(timestamp), start)
        position = self.offset_index.lookup(offset)
        file = self.file()
        for batch in scan_batches(file, position, self.size, chunk=LOOKUP_CHUNK):
            if batch.max_timestamp >= timestamp:
                record = first_in_batch(read_batch(file, batch), timestamp, start, longest)
                if record is not None:
                    return record
        return None

    def find_largest_timestamp(self, longest: int = UNLIMITED_RECORD) -> TimedRecord | None:
        """Return the first record with the largest timestamp of the segment, None if the segment has no records. Raises
        CorruptBatch, RecordTooLarge (see ``first_in_batch``)."""
        largest = self.largest
        position = self.offset_index.lookup(largest.offset)
        file = self.file()
        for batch in scan_batches(file, position, self.size, chunk=LOOKUP_CHUNK):
            if batch.max_timestamp == largest.timestamp and batch.record_count:
                return first_in_batch(read_batch(file, batch), largest.timestamp, Offset(0), longest)
        return None

    # -- truncating and closing

    def end_before(self, offset: Offset) -> SegmentEnd:
        """Return the end of this segment after a truncation to ``offset``. A batch that contains ``offset`` is removed
        completely. Changes nothing: it reads all that ``truncate_to`` needs. Raises CorruptBatch."""
        position = self.position_of(offset)
        end = offset
        if position is not None:
            first = next(scan_batches(self.file(), position, self.size, chunk=LOOKUP_CHUNK))
            end = min(end, Offset(first.base_offset))
        largest = self.time_index.last_before(end)
        start = self.offset_index.lookup(largest.offset)
        for batch in scan_batches(self.file(), start, self.size if position is None else position):
            if batch.max_timestamp > largest.timestamp and batch.record_count:
                largest = TimedOffset(batch.max_timestamp, batch.last_offset)
        return SegmentEnd(end, position, largest)

    def truncate_to(self, end: SegmentEnd) -> None:
        """Truncate the files to ``end``, which ``end_before`` has returned."""
        self.offset_index.truncate_to(end.offset)
        self.time_index.truncate_to(end.offset)
        truncate_aborted(self.context.disk, self.path(TXN_INDEX), end.offset)
        self._last_aborted = None
        self.offset_index.write()
        self.time_index.write()
        self._indexes_exist = self._unwritten = True
        if end.position is not None:
            self.cut_at(end.position)
        self._largest = end.largest

    def cut_at(self, position: int) -> None:
        """Truncate the log file to ``position`` bytes. The caller truncates or rebuilds the indexes."""
        self.file().truncate(position)
        self.size = position
        self._recent = None
        self._since_index = 0
        if not position:
            self._first_timestamp = None
            self.created_ms = self.context.clock.time_ms()

    def start_over(self, size: int) -> None:
        """Empty the indexes, before they are rebuilt. ``size``: bytes of the log file. An empty log keeps to have no
        indexes until its first record."""
        self.release_indexes()
        disk = self.context.disk
        disk.remove(self.path(TXN_INDEX))
        self._last_aborted = None
        self._indexes_exist = False
        if size or any(disk.exists(self.path(suffix)) for suffix in (OFFSET_INDEX, TIME_INDEX)):
            self._make_indexes()
        self._largest = TimedOffset(NO_TIMESTAMP, self.base_offset)
        self._recent = None
        self._since_index = 0
        self._first_timestamp = None
        self.size = size

    def _make_indexes(self) -> None:
        """Create empty index files. Kafka's tools expect them for every log file with records."""
        self._indexes_exist = False  # existing files are overwritten
        self.offset_index.write()
        self.time_index.write()
        self._indexes_exist = self._unwritten = True

    def write_indexes(self) -> None:
        """Write the pending index entries. The largest timestamp becomes the last entry of the time index."""
        if not self.size or not self._unwritten:
            return
        self.time_index.add(self.largest)
        self.offset_index.write()
        self.time_index.write()
        self._indexes_exist = True
        self._unwritten = False

    def seal(self) -> None:
        """End appends to this segment: write the indexes, and release what only the active segment needs."""
        self.write_indexes()
        self.release_indexes()
        self._recent = None

    def release_indexes(self) -> None:
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.release()
        self._offset_index = self._time_index = None

    def close(self) -> None:
        """Close the file and the maps. They are opened again on use."""
        self.context.files.closed(self)
        self.release_handle()
        self.release_indexes()

    def release(self) -> None:
        """Close the file, and release the indexes unless they have entries that are not written yet."""
        self.context.files.closed(self)
        self.release_handle()
        if not self._unwritten:
            self.release_indexes()

    def mark_deleted(self) -> list[str]:
        """Rename the files for deletion. Returns the new paths."""
        self.close()
        disk = self.context.disk
        marked = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if disk.exists(path):
                disk.rename(path, path + DELETED, sync=False)
                marked.append(path + DELETED)
        return marked
