"""A stored segment's metadata by the ends of its files alone: ``rebuilt`` reads all of its log."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from milena.protocol.records.batch import HEADER_SIZE, CorruptBatch, iter_batches
from milena.protocol.types import Offset
from milena.storage.files import offset_index, time_index
from milena.storage.files.checkpoints import CorruptCheckpoint, decode_epochs
from milena.storage.state.epoch_cache import LeaderEpochCache
from milena.tiered.metadata.descriptions import CorruptDescription, described
from milena.tiered.rebuilding.epoch_chains import epochs_within
from milena.tiered.rebuilding.rebuilt_metadata import NotASegment, Rebuilt, as_described, by_files, placeholder, rebuilt
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.remote_storage import (
    LOG_SUFFIX,
    IndexType,
    RemoteResourceNotFound,
    RemoteStorage,
    StoredSegment,
)

LONGEST_TAIL: Final = 16 << 20
"""Bytes behind the last index entry up to which a log's end is looked at by itself."""


class Surveyed(NamedTuple):
    """``cut``: from which offset on the log is missing or damaged, and why; "" where its files tell of no more."""

    metadata: RemoteLogSegmentMetadata
    cut: str = ""


async def surveyed(storage: RemoteStorage, stored: StoredSegment) -> Surveyed:
    """The metadata as it was when the copy finished: what was kept beside the segment, or else its epochs by the stored
    checkpoint and its end by the last index entry and the batches behind it. The rest of the log is not looked at,
    unless these are lost, or do not agree.

    Raises NotASegment, RemoteStorageError.
    """
    if LOG_SUFFIX not in stored.objects:
        raise NotASegment("its log is missing")
    data = await storage.description(stored.segment_id, stored.start_offset)
    if data is not None:
        try:
            return Surveyed(as_described(stored, described(data, stored.segment_id)))
        except CorruptDescription:
            pass
    found = await _by_its_ends(storage, stored)
    if found is not None:
        return Surveyed(found)
    whole = await rebuilt(storage, stored)
    return Surveyed(whole.metadata, await _cut(storage, stored, whole))


async def _cut(storage: RemoteStorage, stored: StoredSegment, whole: Rebuilt) -> str:
    end, damage = whole.metadata.end_offset, whole.contents.damage
    if damage:
        return f"at offset {end + 1}: {damage[-1]}"
    asking = placeholder(stored)
    known = int(end)
    for index, parse in ((IndexType.OFFSET, _last_offset), (IndexType.TIMESTAMP, _last_timed)):
        try:
            known = max(known, stored.start_offset + parse(await storage.fetch_index(asking, index)))
        except RemoteResourceNotFound:
            continue
    return f"at offset {end + 1}: it ends there, and an index has offset {known}" if known > end else ""


def _last_offset(index: bytes) -> int:
    """Relative to the segment's start; -1 if there is none, or the index is damaged."""
    entries = offset_index.entries(index)
    rising = all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(entries))
    return entries[-1][0] if entries and rising else -1


def _last_timed(index: bytes) -> int:
    """As ``_last_offset``."""
    entries = time_index.entries(index)
    rising = all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(entries))
    return entries[-1][1] if entries and rising else -1


async def _by_its_ends(storage: RemoteStorage, stored: StoredSegment) -> RemoteLogSegmentMetadata | None:
    asking, size = placeholder(stored), stored.objects[LOG_SUFFIX]
    try:
        offsets = await storage.fetch_index(asking, IndexType.OFFSET)
        times = await storage.fetch_index(asking, IndexType.TIMESTAMP)
        known = LeaderEpochCache(decode_epochs(await storage.fetch_index(asking, IndexType.LEADER_EPOCH)))
    except (RemoteResourceNotFound, CorruptCheckpoint):
        return None
    last = offset_index.last_entry(offsets)
    position = last[1] if last is not None else 0
    if not 0 <= position <= size - HEADER_SIZE or size - position > LONGEST_TAIL:
        return None
    tail = memoryview(await (await storage.fetch(asking, position, size - 1)).read())
    timed = time_index.last_entry(times)
    newest, end, read = -1 if timed is None else timed[0], -1, 0
    try:
        for batch in iter_batches(tail):
            if batch.base_offset < max(stored.start_offset, end + 1) or not batch.is_valid:
                return None
            end, read = batch.last_offset, read + batch.size_in_bytes
            newest = max(newest, batch.max_timestamp if batch.count else -1)
    except CorruptBatch:
        return None
    indexed = max(-1 if last is None else last[0], -1 if timed is None else timed[1])
    if read != len(tail) or end < stored.start_offset + indexed:
        return None
    start = Offset(stored.start_offset)
    epochs = epochs_within(known, start, Offset(end))
    return by_files(stored, start, Offset(end), epochs, newest) if epochs else None
