"""Rebuilds the metadata of a stored segment from its own files, and from what was kept beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from milena.protocol.types import LeaderEpoch, NodeId, Offset
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

UNKNOWN_BROKER: Final = NodeId(-1)
"""The broker id if it is unknown which broker copied the segment."""


class NotASegment(ValueError):
    """These files are not a readable segment; the text says why."""


def placeholder(stored: StoredSegment) -> RemoteLogSegmentMetadata:
    """Metadata that is sufficient to fetch the objects. Its offsets and epochs are meaningless."""
    start = Offset(stored.start_offset)
    return by_files(stored, start, start, [EpochEntry(LeaderEpoch(0), start)], -1)


class Rebuilt(NamedTuple):
    """``undescribed``: why it is not known what the segment replaces, or is replaced by; "" if it is known."""

    metadata: RemoteLogSegmentMetadata
    contents: LogContents
    undescribed: str


async def rebuilt(storage: RemoteStorage, stored: StoredSegment) -> Rebuilt:
    """The metadata as it was when the copy finished, and the contents of the log. Only the log is required: it is the
    last object that a copy writes. If the segment's metadata was kept beside it, that is what counts. Else the end
    offset and the timestamp come from the log's batches, the epochs from the stored checkpoint, or from the batches if
    the checkpoint is lost or damaged; of a compacted log that is not all.

    Raises NotASegment, RemoteStorageError.
    """
    if LOG_SUFFIX not in stored.objects:
        raise NotASegment(f"there is no {', '.join(sorted(REQUIRED - stored.objects.keys()))}")
    asking = placeholder(stored)
    contents = await read_contents(storage, asking)
    data = await storage.description(stored.segment_id, stored.start_offset)
    why = "nothing is kept of it"
    if data is not None:
        try:
            metadata = as_described(stored, described(data, stored.segment_id))
            if stored.objects[LOG_SUFFIX] != metadata.size:
                contents.damage.append(f"its log has {stored.objects[LOG_SUFFIX]} of {metadata.size} bytes")
            return Rebuilt(metadata, contents, "")
        except CorruptDescription as error:
            why = f"what is kept of it cannot be read: {error}"
    metadata = await _by_its_files(storage, stored, contents)
    gap = contents.gap
    if contents.first_offset is not None and contents.first_offset > stored.start_offset:
        gap = f"no record of offsets {stored.start_offset} to {contents.first_offset - 1}"
    if data is not None:
        gap = gap or "it is of a compacted log"
    return Rebuilt(metadata, contents, f"{gap}, and {why} in {DESCRIPTIONS}" if gap else "")


def as_described(stored: StoredSegment, known: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    """What was kept beside a segment, as of a finished copy."""
    return replace(
        known,
        event_timestamp_ms=stored.modified_ms,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        leader_epoch=UNFENCED,
    )


async def _by_its_files(
    storage: RemoteStorage, stored: StoredSegment, contents: LogContents
) -> RemoteLogSegmentMetadata:
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
