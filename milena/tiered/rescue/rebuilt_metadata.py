"""Rebuilds the metadata of a stored segment from its own files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.storage.files.checkpoints import CorruptCheckpoint, decode_epochs
from milena.storage.state.epoch_cache import EpochEntry, LeaderEpochCache
from milena.tiered.reading.log_contents import LogContents, read_contents
from milena.tiered.rescue.object_checks import epochs_within, wrong_epochs
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.store.remote_storage import (
    LOG_SUFFIX,
    REQUIRED,
    IndexType,
    RemoteResourceNotFound,
    RemoteStorage,
    StoredSegment,
)

UNKNOWN_BROKER: Final = NodeId(-1)
"""The broker id if it is unknown which broker copied the segment."""


class NotASegment(ValueError):
    """These files are not a readable segment; the text says why."""


def placeholder(stored: StoredSegment) -> RemoteLogSegmentMetadata:
    """Metadata that is sufficient to fetch the objects. Its offsets and epochs are meaningless."""
    start = Offset(stored.start_offset)
    return _segment(stored, start, start, [EpochEntry(LeaderEpoch(0), start)], -1)


async def rebuilt(storage: RemoteStorage, stored: StoredSegment) -> tuple[RemoteLogSegmentMetadata, LogContents]:
    """The metadata as it was when the copy finished, and the contents of the log. Only the log is required: it is the
    last object that a copy writes. The end offset and the timestamp come from its batches, the epochs from the stored
    checkpoint, or from the batches if the checkpoint is lost or damaged.

    Raises NotASegment, RemoteStorageError.
    """
    if LOG_SUFFIX not in stored.objects:
        raise NotASegment(f"there is no {', '.join(sorted(REQUIRED - stored.objects.keys()))}")
    asking = placeholder(stored)
    contents = await read_contents(storage, asking)
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
    return _segment(stored, start, end, epochs, contents.max_timestamp_ms), contents


def _segment(
    stored: StoredSegment, start: Offset, end: Offset, epochs: Sequence[EpochEntry], max_timestamp_ms: int
) -> RemoteLogSegmentMetadata:
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
