"""The producer state at an offset in the tier, from the snapshots there (docs/kafka-semantics.md: Followers that begin
in the tier).

Each segment has the producer snapshot of its end. The requested offset may lie inside a segment of an earlier leader:
then the batches between snapshot and offset are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import Offset
from milena.storage.files.end_marker import read_end_marker
from milena.storage.files.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from milena.storage.state.epoch_cache import EpochEntry
from milena.storage.state.producer_state import ProducerState
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.reading.log_contents import DamagedLog, batches_of
from milena.tiered.segments.lineage import epoch_at
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.remote_storage import (
    IndexType,
    RemoteResourceNotFound,
    RemoteStorage,
    RemoteStorageError,
)


class CorruptProducers(RemoteStorageError):
    """A producer snapshot in the tier is invalid."""


async def producers_at(
    storage: RemoteStorage,
    cache: RemoteLogMetadataCache,
    offset: Offset,
    epochs: Sequence[EpochEntry],
    log_start: Offset,
) -> bytes:
    """Return a snapshot of the producers at ``offset``, for a log with these ``epochs``. Raises RemoteStorageError,
    CorruptBatch, OSError."""
    pieces: list[tuple[RemoteLogSegmentMetadata, Offset]] = []
    at = offset
    snapshot = encode_snapshot(ProducerState())
    while at > log_start:
        holding = _holding(cache, Offset(at - 1), epochs)
        ending = [segment for segment in holding if segment.end_offset == at - 1]
        if ending:
            snapshot = await _snapshot_of(storage, ending[0])
            break
        if not holding:
            raise RemoteResourceNotFound(f"the tier has no segment with offset {at - 1}, for its producers")
        pieces.append((holding[0], at))
        at = holding[0].start_offset
    return await _replayed(storage, snapshot, pieces) if pieces else snapshot


def _holding(
    cache: RemoteLogMetadataCache, offset: Offset, epochs: Sequence[EpochEntry]
) -> list[RemoteLogSegmentMetadata]:
    """Return the segments that contain the offset. The segment with the highest start offset is first, since it
    requires the least reading."""
    index = epoch_at(offset, epochs)
    found = [] if index is None else cache.find(epochs[index].epoch, offset)
    return sorted(found, key=lambda segment: (segment.start_offset, segment.id.int), reverse=True)


async def _snapshot_of(storage: RemoteStorage, segment: RemoteLogSegmentMetadata) -> bytes:
    data = await storage.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT)
    try:
        decode_snapshot(data)
    except CorruptSnapshot as error:
        raise CorruptProducers(f"producer snapshot of the segment at {segment.start_offset}: {error}") from error
    return data


async def _replayed(
    storage: RemoteStorage, snapshot: bytes, pieces: Sequence[tuple[RemoteLogSegmentMetadata, Offset]]
) -> bytes:
    """Apply batches to a snapshot and return the result. ``pieces``: the segments to read, each up to an offset; the
    last piece precedes the others in the log."""
    state = ProducerState()
    state.load(decode_snapshot(snapshot))
    for segment, upto in reversed(pieces):
        try:
            await _replay(storage, state, segment, upto)
        except DamagedLog as error:
            raise CorruptBatch(f"the segment at {segment.start_offset} in the tier: {error}") from error
    return encode_snapshot(state)


async def _replay(
    storage: RemoteStorage, state: ProducerState, segment: RemoteLogSegmentMetadata, upto: Offset
) -> None:
    async for _, batch in batches_of(storage, segment):
        if batch.base_offset >= upto:
            return
        if batch.producer_id < 0:
            continue
        if not batch.is_valid:
            raise CorruptBatch(f"the batch at offset {batch.base_offset} in the tier has a wrong checksum")
        if not batch.is_control:
            state.add_batch(batch)
        elif (marker := read_end_marker(batch)) is not None:
            state.end_txn(marker)
