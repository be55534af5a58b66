"""Finding batches in one segment of the tier: by index, a range of bytes, and batch headers.

If the indexes cannot be used, the segment is scanned from its start; the position reached is cached, so that a
sequential reader scans the segment once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from milena.protocol.records.batch import HEADER_SIZE, BatchView, CorruptBatch
from milena.protocol.types import Offset
from milena.runtime.logging import get_logger
from milena.runtime.network import FileRange, Part
from milena.storage.files.index_file import CorruptIndex
from milena.storage.files.offset_index import PositionBounds
from milena.storage.files.txn_index import AbortedTxn, decode_aborted
from milena.storage.log.batch_scan import LOOKUP_CHUNK, ScannedBatch, scan_batches
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.index_cache import CorruptRemoteIndex, RemoteIndexCache
from milena.tiered.store.remote_storage import (
    IndexType,
    RemoteResourceNotFound,
    RemoteStorage,
    RemoteStorageError,
)
from milena.tiered.store.segment_indexes import SegmentIndexes

SCAN: Final = 256 << 10
"""Bytes per read if no index limits the range."""
MOST_SCANNED: Final = 256
"""The number of segments without usable indexes whose scan position is cached."""


@dataclass(frozen=True, slots=True)
class SegmentWindow:
    """The bytes ``[start, end)`` of a stored log, which can be read without waiting."""

    start: int
    end: int
    source: FileRange | memoryview

    def pread(self, length: int, position: int) -> bytes:
        length = min(length, self.end - position)
        if isinstance(self.source, FileRange):
            return self.source.handle.pread(length, position)
        return bytes(self.source[position - self.start : position - self.start + length])

    def part(self, position: int, length: int) -> Part:
        """A part of these bytes for the network."""
        if isinstance(self.source, FileRange):
            return self.source.part(position, length)
        return self.source[position - self.start : position - self.start + length]

    def headers(self, position: int) -> Iterator[ScannedBatch]:
        """Yield the batches from ``position`` on whose headers are inside the window. Raises CorruptBatch, OSError."""
        return scan_batches(self, position, self.end, chunk=LOOKUP_CHUNK, whole=False)


class BatchOrder:
    """Checks that the batches of a stored log are consecutive, and within the offsets of its segment.

    A batch's checksum does not cover its base offset, and an object may be another segment's.
    """

    __slots__ = ("_last", "_place", "_segment")

    def __init__(self, segment: RemoteLogSegmentMetadata, place: PositionBounds | None = None) -> None:
        """``place``: the index entry by which the first of the batches was found."""
        self._segment = segment
        self._place = place
        self._last = -1

    def check(self, batch: ScannedBatch) -> None:
        """Check the next batch. Raises CorruptBatch."""
        segment = self._segment
        if batch.base_offset < segment.start_offset or batch.last_offset > segment.end_offset:
            raise CorruptBatch(
                f"the batch at {batch.position} has offsets {batch.base_offset} to {batch.last_offset}, "
                f"segment {segment.id} has {segment.start_offset} to {segment.end_offset}"
            )
        if batch.base_offset <= self._last:
            raise CorruptBatch(
                f"the batch at {batch.position} of segment {segment.id} begins with offset {batch.base_offset}, "
                f"the one before it ends with {self._last}"
            )
        if self._place is not None and not self._place.agrees(batch.position, batch.last_offset):
            raise CorruptBatch(
                f"the batch at {batch.position} of segment {segment.id} ends with offset {batch.last_offset}, "
                "which its index contradicts"
            )
        self._last = batch.last_offset


class SegmentReader:
    """All calls raise RemoteStorageError, CorruptBatch and OSError."""

    def __init__(self, storage: RemoteStorage, indexes: RemoteIndexCache) -> None:
        self._storage = storage
        self._indexes = indexes
        self._scanned: OrderedDict[UUID, tuple[Offset, int]] = OrderedDict()
        """An offset and the position of its batch, of segments without usable indexes."""
        self._log = get_logger("remote-log-reader")

    async def window(self, segment: RemoteLogSegmentMetadata, start: int, length: int) -> SegmentWindow:
        wanted = max(length, HEADER_SIZE)
        found = await self._storage.fetch(segment, start, start + wanted - 1)
        if found.length < min(wanted, segment.size - start):
            raise CorruptBatch(
                f"the log of segment {segment.id} ends at {start + found.length}, but its metadata says {segment.size}"
            )
        source = found.file if found.file is not None else memoryview(await found.read())
        return SegmentWindow(start, start + found.length, source)

    async def indexes(self, segment: RemoteLogSegmentMetadata) -> SegmentIndexes | None:
        """Return the indexes of a segment; None if they are missing or damaged in the store. Use them before the next
        await."""
        try:
            return await self._indexes.get(segment)
        except (CorruptRemoteIndex, RemoteResourceNotFound) as error:
            if segment.id not in self._scanned:  # logged once, not with each read
                self._note_scanned(segment, segment.start_offset, 0)
                self._log.warning(
                    "remote indexes cannot be used",
                    topic=segment.partition.topic,
                    partition=segment.partition.partition,
                    segment=str(segment.id),
                    reason=str(error),
                )
            return None

    async def find(
        self, segment: RemoteLogSegmentMetadata, offset: Offset, wanted: int = 0
    ) -> tuple[SegmentWindow, ScannedBatch] | None:
        """Return the first batch that ends at ``offset`` or later, and a window with its header and up to ``wanted``
        bytes of it. None if the segment has no such batch. Gaps, as compaction leaves them, are distinguished from
        damage by the neighbouring batches. A segment without records, as a cleaning may leave it, is skipped without
        being read."""
        if not segment.size:
            return None
        indexes = await self.indexes(segment)
        place = None if indexes is None else indexes.offsets.position_bounds(offset)
        order = BatchOrder(segment, place)
        if place is None:
            position, length = self._scanned_to(segment, offset), SCAN
        else:
            position = place.position
            length = SCAN if place.beyond is None else place.beyond - position + HEADER_SIZE
        while position < segment.size:
            window = await self.window(segment, position, length + wanted)
            for batch in window.headers(position):
                order.check(batch)
                position = batch.position + batch.size
                if batch.last_offset >= offset:
                    if batch.base_offset > offset:
                        await self._check_hole(segment, place, position)
                    elif (following := _following(segment, window, batch)) is not None:
                        order.check(following)
                    if place is None:
                        self._note_scanned(segment, Offset(batch.base_offset), batch.position)
                    return window, batch
            if position == window.start:
                raise CorruptBatch(f"{segment.size - position} bytes at {position} are less than a batch header")
            length = SCAN
        if place is not None:
            await self._check_hole(segment, place, segment.size)
        return None

    async def _check_hole(self, segment: RemoteLogSegmentMetadata, place: PositionBounds | None, end: int) -> None:
        """Read the batches again, from before the indexed one up to ``end`` and the one after it. Raises CorruptBatch
        if they are not consecutive: then the gap is damage."""
        indexes = await self.indexes(segment)
        position = 0
        if indexes is not None and place is not None and place.indexed is not None:
            position = indexes.offsets.position_bounds(place.indexed - 1).position
        order = BatchOrder(segment)
        while position < min(end + 1, segment.size):
            window = await self.window(segment, position, end + HEADER_SIZE - position)
            begun = position
            for batch in window.headers(position):
                order.check(batch)
                position = batch.position + batch.size
            if position == begun:
                raise CorruptBatch(f"{segment.size - position} bytes at {position} are less than a batch header")

    async def batches(self, segment: RemoteLogSegmentMetadata, offset: Offset) -> AsyncIterator[ScannedBatch]:
        """Yield the batches that end at ``offset`` or later, in order."""
        found = await self.find(segment, offset, SCAN)
        order = BatchOrder(segment)
        while found is not None:
            window, first = found
            found = None
            position = first.position
            for batch in window.headers(position):
                order.check(batch)
                yield batch
                position = batch.position + batch.size
            if position < segment.size:
                window = await self.window(segment, position, SCAN)
                following = next(window.headers(position), None)
                if following is None:
                    raise CorruptBatch(f"{segment.size - position} bytes at {position} are less than a batch header")
                found = window, following

    async def batch(self, segment: RemoteLogSegmentMetadata, header: ScannedBatch) -> BatchView:
        """Return the complete batch with this header."""
        window = await self.window(segment, header.position, header.size)
        return BatchView(memoryview(window.pread(header.size, header.position)))

    async def offset_after(self, segment: RemoteLogSegmentMetadata, position: int) -> Offset:
        """Return an offset that is above all batches before ``position``, as low as the index permits
        (docs/kafka-semantics.md: Aborted transactions)."""
        indexes = await self.indexes(segment)
        found = None if indexes is None else indexes.offsets.first_after_position(position)
        return Offset(segment.end_offset + 1 if found is None else found)

    async def aborted(self, segment: RemoteLogSegmentMetadata) -> list[AbortedTxn]:
        """Return the transactions whose abort markers are in the segment."""
        indexes = await self.indexes(segment)
        if indexes is not None:
            return indexes.aborted
        if segment.txn_index_empty:
            return []
        try:
            data = await self._storage.fetch_index(segment, IndexType.TRANSACTION)
            return decode_aborted(data, "transaction index in the tier")
        except RemoteResourceNotFound:
            return []  # as in the index cache
        except CorruptIndex as error:
            raise RemoteStorageError(str(error)) from error

    def expect(self, segment: RemoteLogSegmentMetadata) -> None:
        """A hint that a reader will soon reach this segment."""
        self._storage.expect(segment)
        self._indexes.expect(segment)

    def _scanned_to(self, segment: RemoteLogSegmentMetadata, offset: Offset) -> int:
        known = self._scanned.get(segment.id)
        return known[1] if known is not None and known[0] <= offset else 0

    def _note_scanned(self, segment: RemoteLogSegmentMetadata, offset: Offset, position: int) -> None:
        self._scanned[segment.id] = offset, position
        self._scanned.move_to_end(segment.id)
        if len(self._scanned) > MOST_SCANNED:
            self._scanned.popitem(last=False)


def _following(segment: RemoteLogSegmentMetadata, window: SegmentWindow, batch: ScannedBatch) -> ScannedBatch | None:
    """Return the batch after ``batch``; None if its header is not inside the window."""
    after = batch.position + batch.size
    return None if after >= segment.size or after + HEADER_SIZE > window.end else next(window.headers(after), None)
