"""Rebuilds the metadata of a stored segment from its files and from its description in the tier
(``tiered.metadata.descriptions``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple

from milena.protocol.records.batch import HEADER_SIZE, CorruptBatch, iter_batches
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.storage.files import offset_index, time_index
from milena.storage.files.checkpoints import CorruptCheckpoint, decode_epochs
from milena.storage.state.epoch_cache import EpochEntry, LeaderEpochCache
from milena.tiered.metadata.descriptions import CorruptDescription, described
from milena.tiered.reading.log_contents import LogContents, read_contents
from milena.tiered.rebuilding.epoch_chains import epochs_within, wrong_epochs
from milena.tiered.segments.segment_metadata import UNFENCED, RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.store.remote_storage import (
    LOG_SUFFIX,
    REQUIRED,
    IndexType,
    RemoteResourceNotFound,
    RemoteStorage,
    StoredSegment,
)
from milena.tiered.store.tier_names import DESCRIPTIONS

LONGEST_TAIL: Final = 16 << 20
"""The maximum number of bytes after the last index entry that ``surveyed`` reads."""
UNKNOWN_BROKER: Final = NodeId(-1)
"""The broker id if it is unknown which broker copied the segment."""


class NotASegment(ValueError):
    """The files are not a readable segment; the message has the reason."""


def placeholder(stored: StoredSegment) -> RemoteLogSegmentMetadata:
    """Return metadata that are sufficient to fetch the segment's objects. Their offsets and epochs are meaningless."""
    start = Offset(stored.start_offset)
    return by_files(stored, start, start, [EpochEntry(LeaderEpoch(0), start)], -1)


class Rebuilt(NamedTuple):
    """Rebuilt metadata, and the contents of the log. ``undescribed``: the reason why it is not known which segments
    this one replaces or is replaced by; "" if that is known."""

    metadata: RemoteLogSegmentMetadata
    contents: LogContents
    undescribed: str


class Surveyed(NamedTuple):
    """Rebuilt metadata. ``cut``: a text with the offset from which on the log is missing or damaged, and the reason; ""
    if no loss is known."""

    metadata: RemoteLogSegmentMetadata
    cut: str = ""


async def rebuilt(storage: RemoteStorage, stored: StoredSegment) -> Rebuilt:
    """Return the metadata as it was when the copy finished, and the contents of the log, which is read completely.

    Only the log is required: it is the last object that a copy writes. The description that was kept beside the
    segment decides. Without one, the end offset and the timestamp come from the log's batches, and the epochs from the
    stored checkpoint, or from the batches if the checkpoint is lost or damaged. These are incomplete for a segment of
    a compacted log.

    Raises NotASegment, RemoteStorageError.
    """
    _require_log(stored)
    contents = await read_contents(storage, placeholder(stored))
    kept, why = await _description(storage, stored)
    if kept is not None:
        if stored.objects[LOG_SUFFIX] != kept.size:
            contents.damage.append(f"its log has {stored.objects[LOG_SUFFIX]} of {kept.size} bytes")
        return Rebuilt(kept, contents, "")
    metadata = await _by_its_files(storage, stored, contents)
    gap = contents.gap
    if contents.first_offset is not None and contents.first_offset > stored.start_offset:
        gap = f"no record of offsets {stored.start_offset} to {contents.first_offset - 1}"
    if why:  # descriptions are kept only of cleaned segments
        gap = gap or "it is of a compacted log"
    why = why or "nothing is kept of it"
    return Rebuilt(metadata, contents, f"{gap}, and {why} in {DESCRIPTIONS}" if gap else "")


async def surveyed(storage: RemoteStorage, stored: StoredSegment) -> Surveyed:
    """Return the same metadata as ``rebuilt``, if possible without reading the log completely.

    Without a description, the epochs come from the stored checkpoint, and the end from the last index entry and the
    batches after it. The complete log is read if these files are lost, or contradict each other.

    Raises NotASegment, RemoteStorageError.
    """
    _require_log(stored)
    kept, _ = await _description(storage, stored)
    if kept is not None:
        return Surveyed(kept)
    found = await _by_its_ends(storage, stored)
    if found is not None:
        return Surveyed(found)
    whole = await rebuilt(storage, stored)
    return Surveyed(whole.metadata, await _cut(storage, stored, whole))


def _require_log(stored: StoredSegment) -> None:
    if LOG_SUFFIX not in stored.objects:
        raise NotASegment(f"there is no {', '.join(sorted(REQUIRED - stored.objects.keys()))}")


async def _description(storage: RemoteStorage, stored: StoredSegment) -> tuple[RemoteLogSegmentMetadata | None, str]:
    """Return the description that was kept beside the segment, as of a finished copy. None if there is none, or if it
    is damaged; then the second value is the reason. Raises RemoteStorageError."""
    data = await storage.description(stored.segment_id, stored.start_offset)
    if data is None:
        return None, ""
    try:
        known = described(data, stored.segment_id)
    except CorruptDescription as error:
        return None, f"what is kept of it cannot be read: {error}"
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    return replace(known, event_timestamp_ms=stored.modified_ms, state=finished, leader_epoch=UNFENCED), ""


async def _by_its_files(
    storage: RemoteStorage, stored: StoredSegment, contents: LogContents
) -> RemoteLogSegmentMetadata:
    """The metadata by the complete log and the stored epochs. Raises NotASegment, RemoteStorageError."""
    asking = placeholder(stored)
    if contents.last_offset is None or contents.first_offset is None:
        raise NotASegment(f"the log has no batch{''.join(f': {what}' for what in contents.damage[:1])}")
    start = Offset(stored.start_offset)
    if contents.first_offset < start:
        raise NotASegment(f"the log begins at offset {contents.first_offset}, before its name says")
    end = contents.last_offset
    epochs = [EpochEntry(contents.epochs[0].epoch, start), *contents.epochs[1:]]
    try:
        known = LeaderEpochCache(decode_epochs(await storage.fetch_index(asking, IndexType.LEADER_EPOCH)))
    except (CorruptCheckpoint, RemoteResourceNotFound):
        known = LeaderEpochCache()
    if not any(wrong_epochs(known, contents.epochs)):
        epochs = epochs_within(known, start, end)
    return by_files(stored, start, end, epochs, contents.max_timestamp_ms)


def by_files(
    stored: StoredSegment, start: Offset, end: Offset, epochs: Sequence[EpochEntry], max_timestamp_ms: int
) -> RemoteLogSegmentMetadata:
    """The metadata of a finished copy with these offsets (inclusive)."""
    return RemoteLogSegmentMetadata(
        stored.segment_id,
        start,
        end,
        UNKNOWN_BROKER,
        max_timestamp_ms,
        stored.modified_ms,
        tuple(epochs),
        stored.objects.get(LOG_SUFFIX, 0),
        None,
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        IndexType.TRANSACTION.value not in stored.objects,
    )


async def _cut(storage: RemoteStorage, stored: StoredSegment, whole: Rebuilt) -> str:
    """Return the value of ``Surveyed.cut``, which is set if the log is damaged or an index has offsets after its
    end."""
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
    """Return the last offset in an offset index, relative to the segment's start; -1 if it is empty or damaged."""
    entries = offset_index.entries(index)
    rising = all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(entries))
    return entries[-1][0] if entries and rising else -1


def _last_timed(index: bytes) -> int:
    """Return the last offset in a time index, relative to the segment's start; -1 if it is empty or damaged."""
    entries = time_index.entries(index)
    rising = all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(entries))
    return entries[-1][1] if entries and rising else -1


async def _by_its_ends(storage: RemoteStorage, stored: StoredSegment) -> RemoteLogSegmentMetadata | None:
    """The metadata by the indexes, the stored epochs and the end of the log; None if one is missing or damaged, or if
    they contradict each other. Raises RemoteStorageError."""
    asking, size = placeholder(stored), stored.objects[LOG_SUFFIX]
    try:
        offsets = await storage.fetch_index(asking, IndexType.OFFSET)
        times = await storage.fetch_index(asking, IndexType.TIMESTAMP)
        known = LeaderEpochCache(decode_epochs(await storage.fetch_index(asking, IndexType.LEADER_EPOCH)))
    except (RemoteResourceNotFound, CorruptCheckpoint):
        return None
    last = offset_index.last_entry(offsets)
    position = last[1] if last is not None else 0
    # A position outside of the log is damage. If the position is far from the end, reading from there is no cheaper
    # than `rebuilt`.
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
    # A partial batch at the end, or an index entry after it: the log was cut.
    if read != len(tail) or end < stored.start_offset + indexed:
        return None
    start = Offset(stored.start_offset)
    epochs = epochs_within(known, start, Offset(end))
    return by_files(stored, start, Offset(end), epochs, newest) if epochs else None
