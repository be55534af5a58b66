"""Reads from a tier: batches of stretches, offset and time indexes, aborted transactions.

All functions block. They are called from Spark's threads, while a loop in another thread reads ahead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

from milena.pipeline.errors import PipelineError
from milena.pipeline.loops import LoopThread
from milena.pipeline.planning import Aborted, Stretch
from milena.protocol.records.batch import HEADER_SIZE, BatchView, CorruptBatch, batch_size_at
from milena.storage.files import offset_index, time_index
from milena.storage.files.index_file import CorruptIndex
from milena.storage.files.producer_snapshot import CorruptSnapshot, decode_snapshot
from milena.storage.files.txn_index import decode_aborted
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.remote_storage import (
    LOG_SUFFIX,
    IndexType,
    RemoteResourceNotFound,
    RemoteStorage,
    RemoteStorageError,
    TruncatedObject,
)
from milena.tiered.store.tier_names import object_path

PIECE: Final = 4 << 20
"""The bytes that are read at a time."""


class Moved(Exception):
    """The segment does not exist any more: it was replaced or deleted after the plan was made."""


class Damaged(PipelineError):
    """An object in the tier is damaged, so records from some offset on cannot be read."""


class OpenTier:
    """An open tier. ``storage`` is used only on the loop."""

    def __init__(self, loop: LoopThread, storage: RemoteStorage) -> None:
        self.loop = loop
        self.storage = storage
        self._entries = lru_cache(maxsize=8)(self._read_entries)

    def batches(
        self, stretch: Stretch, since: int | None = None, skip: Callable[[str], None] | None = None
    ) -> Iterator[BatchView]:
        """Yield the batches with offsets of ``stretch``, in order, with verified checksums. The first and the last
        batch may have other offsets, too.

        ``since`` (ms): batches whose records are all earlier may be left out. ``skip`` is called with a message if
        batches are damaged and a later one is valid; without it, and at the end of the log, damage is an error. Raises
        Moved, Damaged."""
        segment = stretch.segment
        assert segment is not None
        first = max(stretch.first, self._time_bound(segment, since))
        at, why = stretch.first, ""
        try:
            for batch in self._checked(segment, self._position(segment, first), stretch.last, go_on=skip is not None):
                if isinstance(batch, CorruptBatch):
                    why = why or str(batch)
                    continue
                if why and skip is not None and batch.base_offset > max(at, first):
                    lost_to = min(batch.base_offset - 1, stretch.last)
                    skip(f"{named(segment)}, offsets {max(at, first)} to {lost_to}: {why}")
                why = ""
                if batch.last_offset >= first:
                    yield batch
                    at = batch.last_offset + 1
                if batch.last_offset >= stretch.last:
                    return
            if why:
                raise CorruptBatch(why)
        except CorruptBatch as error:
            raise Damaged(f"{named(segment)}, at offset {at}: {error}") from None
        except RemoteResourceNotFound as error:
            raise Moved(str(error)) from None
        except RemoteStorageError as error:
            raise Damaged(f"{named(segment)}, at offset {at}: {error}") from None

    def _checked(
        self, segment: RemoteLogSegmentMetadata, position: int, last: int, *, go_on: bool
    ) -> Iterator[BatchView | CorruptBatch]:
        """Yield the valid batches from ``position`` up to offset ``last``. ``go_on``: yield the error of a damaged
        batch and continue with the next one, which begins at an entry of the offset index if the length is damaged.
        Raises CorruptBatch."""
        while True:
            try:
                for data in self._whole_batches(segment, position):
                    position += len(data)
                    batch = BatchView(data)
                    try:
                        _check_offsets(segment, batch)
                        if batch.base_offset <= last:
                            batch.verify_crc()
                    except CorruptBatch as error:
                        if not go_on:
                            raise
                        yield error
                        continue
                    if batch.base_offset > last:
                        return
                    yield batch
                return
            except CorruptBatch as error:
                positions = [one for _, one in self.entries(segment)] if go_on else []
                following = bisect_right(positions, position)
                if following == len(positions):
                    raise
                yield error
                position = positions[following]

    def _whole_batches(self, segment: RemoteLogSegmentMetadata, position: int) -> Iterator[memoryview]:
        """Yield the batches from ``position`` on. Only a batch that extends over two pieces is copied. Raises
        CorruptBatch."""
        held = b""
        for piece in self._pieces(segment, position):
            data, begin = memoryview(piece), 0
            if held:
                head = memoryview(held + piece[:HEADER_SIZE])
                size = batch_size_at(head, 0)
                if size is None or size > len(held) + len(piece):
                    held += piece
                    continue
                begin = size - len(held)
                yield memoryview(held + piece[:begin])
                position += size
            limit = len(data)
            while (size := batch_size_at(data, begin)) is not None and begin + size <= limit:
                yield data[begin : begin + size]
                begin += size
                position += size
            held = piece[begin:]
        if held:
            raise CorruptBatch(f"{len(held)} bytes at position {position} are not a complete batch")

    def _pieces(self, segment: RemoteLogSegmentMetadata, position: int) -> Iterator[bytes]:
        """Yield the log from ``position`` on in pieces. The next piece is fetched while the caller uses one. Raises
        CorruptBatch after the last piece of a log that is shorter than its metadata say."""
        pending: Future[bytes] | None = None
        try:
            while position < segment.size:
                data = (pending or self.loop.start(self._fetch(segment, position))).result()
                position += len(data)
                pending = self.loop.start(self._fetch(segment, position)) if position < segment.size else None
                yield data
        finally:
            if pending is not None:
                pending.cancel()

    async def _fetch(self, segment: RemoteLogSegmentMetadata, position: int) -> bytes:
        data, size = b"", position
        try:
            data = await self._range(segment, position)
        except TruncatedObject as error:
            size = error.size
            if position < size < segment.size:
                data = await self._range(replace(segment, size=size), position)
        if not data:
            raise CorruptBatch(f"it ends at position {size}, but its metadata say {segment.size} bytes")
        return data

    async def _range(self, segment: RemoteLogSegmentMetadata, position: int) -> bytes:
        last = min(position + PIECE, segment.size) - 1
        return await (await self.storage.fetch(segment, position, last)).read()

    def _position(self, segment: RemoteLogSegmentMetadata, offset: int) -> int:
        """Return a position at or before the batch with ``offset``."""
        if offset <= segment.start_offset:
            return 0
        entries = self.entries(segment)
        slot = bisect_right(entries, offset, key=lambda entry: entry[0]) - 1
        return entries[slot][1] if slot >= 0 else 0

    def entries(self, segment: RemoteLogSegmentMetadata) -> Sequence[tuple[int, int]]:
        """Return the offset index: last offset of a batch, and its position. Empty if the index is lost or damaged."""
        return self._entries(segment)

    def _read_entries(self, segment: RemoteLogSegmentMetadata) -> list[tuple[int, int]]:
        data = self._index(segment, IndexType.OFFSET) or b""
        found = [(segment.start_offset + relative, position) for relative, position in offset_index.entries(data)]
        rising = all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(found))
        return found if rising and (not found or 0 <= found[0][1] <= found[-1][1] < segment.size) else []

    def _time_bound(self, segment: RemoteLogSegmentMetadata, since: int | None) -> int:
        """Return an offset before which no record has the timestamp ``since`` or a later one."""
        if since is None:
            return segment.start_offset
        entries = time_index.entries(self._index(segment, IndexType.TIMESTAMP) or b"")
        slot = bisect_right(entries, since - 1, key=lambda entry: entry[0]) - 1
        return segment.start_offset + entries[slot][1] + 1 if slot >= 0 else segment.start_offset

    def aborted(self, segment: RemoteLogSegmentMetadata, first: int, last: int) -> list[Aborted]:
        """Return the transactions whose abort markers are at offsets ``first`` to ``last`` of the segment. Raises
        Damaged."""
        if segment.txn_index_empty:
            return []
        try:
            found = decode_aborted(self._index(segment, IndexType.TRANSACTION) or b"", "its transaction index")
        except CorruptIndex as error:
            raise Damaged(f"{named(segment, IndexType.TRANSACTION.value)}: {error}") from None
        every = (Aborted(one.producer_id, one.first_offset, one.last_offset) for one in found)
        return [one for one in every if first <= one.last <= last]

    def first_open(self, segment: RemoteLogSegmentMetadata) -> int | None:
        """Return the first offset of the earliest transaction that is open at the segment's end; None if there is none.
        Raises Damaged."""
        data = self._index(segment, IndexType.PRODUCER_SNAPSHOT)
        if data is None:
            raise Damaged(
                f"{named(segment, IndexType.PRODUCER_SNAPSHOT.value)} is missing, so open transactions are unknown"
            )
        try:
            firsts = [one.txn_first_offset for _, one in decode_snapshot(data) if one.txn_first_offset is not None]
        except CorruptSnapshot as error:
            raise Damaged(f"{named(segment, IndexType.PRODUCER_SNAPSHOT.value)}: {error}") from None
        return min(firsts, default=None)

    def _index(self, segment: RemoteLogSegmentMetadata, index: IndexType) -> bytes | None:
        try:
            return self.loop.run(self.storage.fetch_index(segment, index))
        except RemoteResourceNotFound:
            return None
        except RemoteStorageError as error:
            raise Damaged(f"{named(segment, index.value)}: {error}") from None


def named(segment: RemoteLogSegmentMetadata, suffix: str = LOG_SUFFIX) -> str:
    """Return the path of a segment's object relative to the tier's folder, for messages."""
    return object_path(segment, suffix)


def _check_offsets(segment: RemoteLogSegmentMetadata, batch: BatchView) -> None:
    """Check the offsets of a batch, which its checksum does not cover: the object may belong to another segment. Raises
    CorruptBatch."""
    if batch.base_offset < segment.start_offset or batch.last_offset > segment.end_offset:
        raise CorruptBatch(
            f"a batch has offsets {batch.base_offset} to {batch.last_offset}, but the segment has "
            f"{segment.start_offset} to {segment.end_offset}"
        )
    if batch.last_offset < batch.base_offset:
        raise CorruptBatch(f"a batch ends at offset {batch.last_offset}, before it begins at {batch.base_offset}")
