"""Finding a record by timestamp in local and remote segments (ListOffsets; docs/kafka-semantics.md: Special
timestamps)."""

from __future__ import annotations

from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import Offset
from milena.storage.log.segment import TimedRecord, first_in_batch
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_cache import ServedSegment
from milena.tiered.reading.remote_reader import LookupRetries, RemoteLogReader
from milena.tiered.reading.remote_segment import SegmentReader
from milena.tiered.segments.segment_metadata import TopicIdPartition
from milena.tiered.store.remote_storage import RemoteStorageError


async def first_at_or_after(
    reader: RemoteLogReader, partition: TopicIdPartition, log: UnifiedLog, timestamp: int
) -> TimedRecord | None:
    """Return the first record of the log with ``timestamp`` (ms) or later. Raises the errors in
    ``shared.tier.FAILURES``.

    Segments that are also local are searched locally. Differs from Kafka, which stops if the first segment that may
    contain such a record has none from the log start on.
    """
    at, lookups = log.log_start_offset, LookupRetries()
    while at < log.local_log_start_offset:
        cache = lookups.begin(await reader.cache(partition))
        candidates = cache.with_timestamp(
            timestamp, at, leader_epochs=log.epochs.entries, log_end=log.local_log_start_offset
        )
        served = next(candidates, None)
        if served is None:
            break
        try:
            found = await _search(reader.segments, served, timestamp)
        except (RemoteStorageError, CorruptBatch):
            if not lookups.may_retry():
                raise
            continue
        if found is not None:
            return found
        at = Offset(served.last + 1)
    return log.offset_for_timestamp(timestamp)


async def _search(segments: SegmentReader, served: ServedSegment, timestamp: int) -> TimedRecord | None:
    segment, start, last = served
    indexes = await segments.indexes(segment)
    # The start of the search: the batch of that offset may contain such a record before it.
    begin = start if indexes is None else Offset(max(start, indexes.times.lookup(timestamp)))
    async for header in segments.batches(segment, begin):
        if header.base_offset > last:
            break
        if header.max_timestamp >= timestamp:
            found = first_in_batch(await segments.batch(segment, header), timestamp, start)
            if found is not None:
                return found if found.offset <= last else None
    return None
