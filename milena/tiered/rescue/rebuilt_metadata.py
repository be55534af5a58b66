"""The metadata of a stored segment, told by its own files where nobody else knows it."""

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
"""Nobody says who copied it."""


class NotASegment(ValueError):
    """These files are no segment that could be read; the text says why."""


def placeholder(stored: StoredSegment) -> RemoteLogSegmentMetadata:
    """Enough to fetch its objects. Its offsets and epochs mean nothing yet."""
    start = Offset(stored.start_offset)
    return _segment(stored, start, start, [EpochEntry(LeaderEpoch(0), start)], -1)


async def rebuilt(storage: RemoteStorage, stored: StoredSegment) -> tuple[RemoteLogSegmentMetadata, LogContents]:
    """As it was when its copy was finished, and what the log holds. Only the log must be there: it was the last to
    appear. The end and the timestamp come from its batches, the epochs from the checkpoint beside them, or from the
    batches too where that is lost or damaged.

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
