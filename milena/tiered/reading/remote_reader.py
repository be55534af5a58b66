"""Reads a log below its local log start: Kafka's RemoteLogReader (docs/kafka-semantics.md: Remote fetches, Aborted
transactions).

A segment serves the offsets that it contains in the epoch that the reader's log has for them, up to the end of that
epoch there. An epoch begins at its leader's log end, so at a batch border in every copy, and the served range ends
there. A batch that spans such a border is corrupt and rejected.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple
from uuid import UUID

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.network import Part
from milena.storage.files.txn_index import overlapping
from milena.storage.log.batch_scan import ScannedBatch
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache, ServedSegment
from milena.tiered.metadata.metadata_manager import MetadataNotReady
from milena.tiered.reading.remote_segment import SegmentReader
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from milena.tiered.shared.tier import Tier
from milena.tiered.store.remote_storage import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)

READY_WAIT: Final = 0.1
"""Seconds that a read waits for the metadata."""
NEAR_END: Final = 16 << 20
"""Bytes before a segment's end at which a sequential reader's next segment is prefetched."""
STEP: Final = 4 << 20
"""Bytes after which the prefetch is repeated: the first one may have been limited by memory."""
MOST_READERS: Final = 1000
MAX_LOOKUPS: Final = 5
"""How often a read looks up its segment again because the segments in the tier have changed."""


class RemoteRead(NamedTuple):
    """A fetch's request for one partition. ``upper`` (exclusive) is the highest offset that its reader may see."""

    offset: Offset
    max_bytes: int
    min_one: bool
    """Whether a first batch larger than ``max_bytes`` is returned whole, instead of nothing."""
    upper: Offset
    committed: bool


class RemoteRecords(NamedTuple):
    """The bytes that were read. They begin with the batch that contains the requested offset; the last batch may be
    incomplete."""

    records: Part
    length: int
    aborted: tuple[tuple[int, int], ...] | None
    """(producer id, first offset) for read_committed readers."""


class RemoteLogReader:
    """Reads from the tier for all partitions of a broker."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self.segments = SegmentReader(tier.storage, tier.indexes)
        self._heads: OrderedDict[UUID, int] = OrderedDict()
        """The position (bytes) up to which a segment was last read."""
        self._untouched: OrderedDict[TopicIdPartition, _Untouched] = OrderedDict()

    @property
    def segments_read(self) -> list[UUID]:
        """The segments that were read, the last one last; only the latest ``MOST_READERS``."""
        return list(self._heads)

    async def cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        """Return the segments of a partition. Raises MetadataNotReady."""
        metadata = self._tier.metadata
        if not metadata.is_ready(partition) and not await metadata.wait_ready(partition, READY_WAIT):
            raise MetadataNotReady(f"the segments of {partition.topic}-{partition.partition} are not known yet")
        return metadata.cache(partition)

    async def read(self, partition: TopicIdPartition, log: UnifiedLog, read: RemoteRead) -> RemoteRecords | None:
        """Return the tier's records from the read's offset on; None if the tier has none between that offset and the
        local log start.

        If the segment is replaced by a cleaned one and deleted while it is read, the segment is looked up again. Raises
        KafkaError OFFSET_OUT_OF_RANGE if no segment serves the offset, and the errors in ``shared.tier.FAILURES``.
        """
        at, lookups = read.offset, LookupRetries()
        refused: dict[UUID, Exception] = {}
        while at < log.local_log_start_offset or at == read.offset:
            cache = lookups.begin(await self.cache(partition))
            served = cache.segment_for(at, leader_epochs=log.epochs.entries, log_end=read.upper, without=refused)
            if served is None:
                raise next(
                    iter(refused.values()), KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {at} is not in the tier")
                )
            try:
                records = await self._read_in(served, at, partition, log, read)
            except RetriableRemoteStorageError:
                raise
            except (RemoteStorageError, CorruptBatch) as error:
                if not lookups.may_retry():
                    # Lost or damaged: another leader may have copied the same records.
                    refused[served.segment.id] = error
                continue
            if records is not None:
                return records
            at = Offset(served.last + 1)  # a gap, as compaction leaves them (KAFKA-15388)
            if not served.segment.size:
                await self._tier.runtime.clock.sleep(0)  # nothing was read: there may be very many of them
        return None

    async def _read_in(
        self, served: ServedSegment, at: Offset, partition: TopicIdPartition, log: UnifiedLog, read: RemoteRead
    ) -> RemoteRecords | None:
        """Read from one segment, from the offset ``at`` on; None if the segment has no record from there on."""
        found = await self.segments.find(served.segment, at, read.max_bytes)
        if found is None or found[1].base_offset > served.last:
            return None
        window, batch = found
        end = await self._end(served, batch, read.max_bytes)
        length = min(read.max_bytes, end - batch.position)
        if length < min(batch.size, end - batch.position):
            length = batch.size if read.min_one else 0
        if batch.position + length > window.end:
            window = await self.segments.window(served.segment, batch.position, length)
        self._note_head(partition, log, served, batch.position, length)
        aborted = await self._aborted(partition, log, served, batch.position + length, read)
        return RemoteRecords(window.part(batch.position, length), length, aborted)

    async def _end(self, served: ServedSegment, batch: ScannedBatch, max_bytes: int) -> int:
        """Return the position in the log, after ``batch``, up to which the segment may be served."""
        segment = served.segment
        if served.last >= segment.end_offset:
            return segment.size
        indexes = await self.segments.indexes(segment)
        limit = batch.position + max(max_bytes, batch.size)
        if indexes is not None and indexes.offsets.lookup(served.last + 1) >= limit:
            return limit
        found = await self.segments.find(segment, Offset(served.last + 1))
        if found is None:
            return segment.size
        after = found[1]
        if after.position <= batch.position:
            raise CorruptBatch(
                f"the batch at {after.position} of segment {segment.id} has offsets {after.base_offset} to "
                f"{after.last_offset}, where another epoch begins at {served.last + 1}"
            )
        return after.position

    def _note_head(
        self, partition: TopicIdPartition, log: UnifiedLog, served: ServedSegment, position: int, length: int
    ) -> None:
        """Let the store prefetch the next segment for a sequential reader."""
        segment, end = served.segment, position + length
        before = self._heads.pop(segment.id, 0)
        self._heads[segment.id] = end
        if len(self._heads) > MOST_READERS:
            self._heads.popitem(last=False)
        if segment.size - end > NEAR_END or not position <= before <= end or before // STEP == end // STEP:
            return
        after = Offset(served.last + 1)
        if after < log.local_log_start_offset:
            cache = self._tier.metadata.cache(partition)
            following = cache.segment_for(after, leader_epochs=log.epochs.entries, log_end=log.log_end_offset)
            if following is not None:
                self.segments.expect(following.segment)

    async def _aborted(
        self, partition: TopicIdPartition, log: UnifiedLog, served: ServedSegment, end: int, read: RemoteRead
    ) -> tuple[tuple[int, int], ...] | None:
        """The aborted transactions of the records read: up to ``end`` (a position), and after the read's offset.

        A segment provides the transactions whose markers it serves. Transactions that ended after the served range,
        even if they began in it, may have ended differently in this log, and do not affect its last stable offset.
        """
        if not read.committed:
            return None
        upper = Offset(min(await self.segments.offset_after(served.segment, end), served.last + 1))
        found: dict[tuple[int, int], None] = {}
        following: ServedSegment | None = served
        while following is not None:
            of_segment = await self.segments.aborted(following.segment)
            await self._check_listed(following.segment)
            ours = [one for one in of_segment if one.last_offset <= following.last]
            some, complete = overlapping(ours, read.offset, upper)
            found |= dict.fromkeys((one.producer_id, one.first_offset) for one in some)
            if complete:
                return tuple(found)
            following = await self._next_with_aborted(partition, log, Offset(following.last + 1))
        some = log.aborted_transactions(read.offset, upper)
        return tuple(found | dict.fromkeys((one.producer_id, one.first_offset) for one in some))

    async def _check_listed(self, segment: RemoteLogSegmentMetadata) -> None:
        """Check that the segment was not deleted: a deleted transaction index cannot be distinguished from one that
        never existed. Raises RemoteResourceNotFound."""
        listed = (await self.cache(segment.partition)).get(segment.id)
        if listed is None or listed.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            raise RemoteResourceNotFound(f"segment {segment.id} was deleted while it was read")

    async def _next_with_aborted(
        self, partition: TopicIdPartition, log: UnifiedLog, offset: Offset
    ) -> ServedSegment | None:
        """The next segment, from ``offset`` on, with aborted transactions. The result is cached: a search through
        thousands of segments without any is not repeated for each fetch."""
        cache = await self.cache(partition)
        view = _view(cache, log)
        known = self._untouched.get(partition)
        if known is not None and known.holds(view, offset):
            return known.found
        found = cache.next_with_txn_index(offset, leader_epochs=log.epochs.entries, log_end=log.log_end_offset)
        self._untouched[partition] = _Untouched(view, offset, found)
        if len(self._untouched) > MOST_READERS:
            self._untouched.popitem(last=False)
        return found


class LookupRetries:
    """Counts how often a read looks up its segment. A read looks again if the segments in the tier have changed since
    its last look-up, because its segment may have been replaced and deleted."""

    __slots__ = ("_cache", "_changes", "_left")

    def __init__(self) -> None:
        self._cache: RemoteLogMetadataCache | None = None
        self._changes = 0
        self._left = MAX_LOOKUPS

    def begin(self, cache: RemoteLogMetadataCache) -> RemoteLogMetadataCache:
        """Start a look-up in ``cache``, and return ``cache``."""
        self._cache, self._changes = cache, cache.changes
        return cache

    def may_retry(self) -> bool:
        """Return after a failed read whether to look up the segment once more."""
        if not self._left or self._cache is None or self._cache.changes == self._changes:
            return False
        self._left -= 1
        return True


class _View(NamedTuple):
    """The state that determines which segments serve which offsets."""

    cache: RemoteLogMetadataCache
    changes: int
    epoch: LeaderEpoch | None
    log_end: Offset
    """The log end offset, or the end of the tier's segments if that is lower."""


def _view(cache: RemoteLogMetadataCache, log: UnifiedLog) -> _View:
    epoch = log.epochs.latest
    highest = None if epoch is None else cache.highest_offset_for_epoch(epoch)
    log_end = min(log.log_end_offset, Offset(0 if highest is None else highest + 1))
    return _View(cache, cache.changes, epoch, log_end)


class _Untouched(NamedTuple):
    """The result of a search: no segment from offset ``start`` up to the segment ``found`` (None: up to the end) has
    aborted transactions."""

    view: _View
    start: Offset
    found: ServedSegment | None

    def holds(self, view: _View, offset: Offset) -> bool:
        if view != self.view or offset < self.start:
            return False
        return self.found is None or offset <= self.found.first
