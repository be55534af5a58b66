"""One round of cleaning one log: builds the offset map of its dirty records, and writes new segments without the
records that the map has a later offset for.

Synchronous code that works on files alone, so that it can run in another process than the log. The owner of the log
swaps each new segment in before it takes the next one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from milena.protocol.records.batch import FIRST_OFFSET, BatchView
from milena.protocol.records.compression import DecompressionBomb
from milena.protocol.records.record_cursor import RecordCursor
from milena.protocol.types import Offset
from milena.runtime.disk import Disk, File
from milena.storage.cleaning.cleaned_segment import CleanedSegment
from milena.storage.cleaning.epoch_marks import EpochMarks
from milena.storage.cleaning.grouping import grouped
from milena.storage.cleaning.offset_map import OffsetMap
from milena.storage.cleaning.rebuilt_batch import epoch_mark
from milena.storage.cleaning.retained import Retained, Rules
from milena.storage.cleaning.source import SegmentToClean, open_log, read_batches, with_index_sizes
from milena.storage.cleaning.transactions import CleanedTransactions
from milena.storage.cleaning.work import Work, aborted_in
from milena.storage.files.names import LOG, segment_file


class Figures(NamedTuple):
    """What a round has read and written. ``map_*``: while the offset map was built; the others: while new segments were
    written."""

    map_records: int
    map_bytes: int
    map_utilization: float
    records_read: int
    records_kept: int
    records_without_key: int
    bytes_read: int
    bytes_written: int


class NewSegment(NamedTuple):
    """A complete segment with the suffix ``.cleaned``, which replaces the segments ``replaced``."""

    base_offset: Offset
    size: int
    replaced: tuple[Offset, ...]
    """Their base offsets; the first is ``base_offset``."""
    changed: bool
    """Whether any batch differs from the original."""
    largest_timestamp: int
    """ms, -1 without records."""
    has_aborted: bool
    """Whether it has a transaction index."""


def _no_check(_count: int) -> None:
    pass


class Round:
    """One round: call ``map_keys``, then ``new_segments``. If the files of only one group are available at a time, call
    ``map_segment`` for each segment until it returns False, ``begin_cleaning``, and ``clean`` for each group.

    Methods raise CorruptBatch, CorruptIndex, OffsetOverflow, OSError, and any error that ``check`` raises to end the
    round. ``check`` is called with the number of bytes that were read or written."""

    def __init__(self, disk: Disk, work: Work, secret: bytes, check: Callable[[int], None] = _no_check) -> None:
        """``secret``: see ``OffsetMap``. Raises ValueError if the map cannot hold a key."""
        self._disk = disk
        self._work = work
        self._check = check
        self._bases = [segment.base_offset for segment in work.segments]
        self._map = OffsetMap(
            work.memory, work.load_factor, secret, keys=max(work.end - max(work.first_dirty, Offset(0)), 0)
        )
        self.cleaned_to = work.first_dirty
        """The first offset that remains dirty: the end of the map."""
        self._map_records = self._map_bytes = self._bytes_read = self._bytes_written = 0
        self._mapped: CleanedTransactions | None = None
        self._retained: Retained | None = None
        self._cleaned = CleanedTransactions(())
        self._marks = EpochMarks()

    @property
    def figures(self) -> Figures:
        """The figures so far."""
        kept = self._retained
        return Figures(
            self._map_records,
            self._map_bytes,
            self._map.utilization,
            kept.read if kept else 0,
            kept.kept if kept else 0,
            kept.without_key if kept else 0,
            self._bytes_read,
            self._bytes_written,
        )

    def map_keys(self) -> None:
        """Add the keys of the dirty records to the map, until it is full."""
        for segment in self._work.segments:
            if segment.base_offset >= self._work.end or not self.map_segment(segment):
                return

    def map_segment(self, segment: SegmentToClean) -> bool:
        """Add the keys of the next segment's dirty records to the map. Returns whether all of them fit."""
        work, following = self._work, self._following(segment)
        if self._mapped is None:
            self._mapped = CleanedTransactions(aborted_in(self._disk, work, work.first_dirty, work.end))
        if following > work.first_dirty and not self._map_segment(segment, self._mapped):
            return False
        self.cleaned_to = max(self.cleaned_to, following)  # compaction may have left a gap at the end
        return True

    def _map_segment(self, segment: SegmentToClean, transactions: CleanedTransactions) -> bool:
        """Return whether all keys fit into the map."""
        with closing(self._open(segment)) as file:
            for batch in self._batches(file, segment, self._work.first_dirty):
                self._check(batch.size_in_bytes)
                gone = transactions.meets(batch)
                if gone or batch.is_control:
                    self._map_records += batch.count
                else:
                    with suppress(DecompressionBomb):  # such a batch is kept unchanged: see Retained
                        if not self._map_records_of(batch):
                            return False
                self._map_bytes += batch.size_in_bytes
                self.cleaned_to = batch.next_offset
        return True

    def _map_records_of(self, batch: BatchView) -> bool:
        keys, start = self._map, self._work.first_dirty
        base, records = batch.base_offset, RecordCursor(batch, self._work.limit, self._work.longest)
        while records.advance():
            key = records.key
            offset = base + int(records.offset_delta)
            if key is not None and offset >= start:
                if keys.full:
                    return False
                keys.put(key, offset)
                # A producer may write any offset delta into a plain batch.
                self.cleaned_to = min(Offset(offset + 1), batch.next_offset)
            self._map_records += 1
        return True

    def new_segments(self) -> Iterator[NewSegment]:
        """Write the segments that replace those before ``cleaned_to``. Incomplete files are removed; if the process
        ends, they are removed when the log is next opened."""
        work = self._work
        segments = [with_index_sizes(self._disk, work.folder, segment) for segment in self.begin_cleaning()]
        groups = grouped(segments, segment_bytes=work.segment_bytes, index_bytes=work.index_bytes, end=work.end)
        for group in groups:
            yield self.clean(group, work.now)

    def begin_cleaning(self) -> list[SegmentToClean]:
        """End the building of the map, and return the segments to clean."""
        work = self._work
        segments = [segment for segment in work.segments if segment.base_offset < self.cleaned_to]
        end = work.segments[len(segments)].base_offset  # the last segment may extend beyond the map
        self._cleaned = CleanedTransactions(aborted_in(self._disk, work, work.segments[0].base_offset, end))
        rules = Rules(
            self._map,
            self.cleaned_to,
            work.end,
            work.now,
            work.delete_retention_ms,
            work.producers,
            work.limit,
            work.longest,
        )
        self._retained = Retained(rules, self._cleaned)
        return segments

    def clean(self, group: Sequence[SegmentToClean], now: int | None) -> NewSegment:
        """Write the segment that replaces ``group``. Tombstones and markers whose delete horizon is before ``now`` (ms)
        are removed; None: all are kept."""
        assert self._retained is not None
        self._retained.now = now
        changed = False
        new = CleanedSegment(self._disk, self._work.folder, group[0].base_offset, self._work.index_interval)
        try:
            for segment in group:
                with closing(self._open(segment)) as file:
                    for batch in self._batches(file, segment):
                        changed = self._clean_batch(batch, new, self._retained) or changed
            kept, self._cleaned.kept = self._cleaned.kept, []
            new.complete(
                kept, self._disk.modified_ms(f"{self._work.folder}/{segment_file(group[-1].base_offset, LOG)}")
            )
        except BaseException:
            new.close()
            new.remove()
            raise
        self._bytes_written += new.size
        bases = tuple(segment.base_offset for segment in group)
        return NewSegment(bases[0], new.size, bases, changed, new.largest_timestamp, bool(kept))

    def _clean_batch(self, batch: BatchView, new: CleanedSegment, retained: Retained) -> bool:
        """Append what is kept of ``batch`` to ``new``; returns whether it differs from the original."""
        data = retained.of(batch)
        if self._work.keeps_epochs and self._marks.begins_with(batch) and not len(data):
            data = epoch_mark(batch)
        if len(data):
            new.append(data)
        self._bytes_read += batch.size_in_bytes
        self._check(batch.size_in_bytes + len(data))
        return data is not batch.memory and data != batch.memory

    def _following(self, segment: SegmentToClean) -> Offset:
        """Return the base offset of the next segment. There is one, since the last segment of the work is not read."""
        return self._bases[bisect_right(self._bases, segment.base_offset)]

    def _open(self, segment: SegmentToClean) -> File:
        return open_log(self._disk, self._work.folder, segment)

    def _batches(self, file: File, segment: SegmentToClean, start: Offset = FIRST_OFFSET) -> Iterator[BatchView]:
        return read_batches(file, segment, self._following(segment), start=start, chunk=self._work.chunk)
