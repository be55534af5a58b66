"""Deleting one segment from the tier: DELETE_SEGMENT_STARTED, the objects, DELETE_SEGMENT_FINISHED
(docs/kafka-semantics.md: Expiration).

The objects are deleted only after DELETE_SEGMENT_STARTED was read back, and no leader epoch fence of a later leader was
read until then. If a step fails, the segment stays in DELETE_SEGMENT_STARTED and is no longer read; the next round
deletes it again. ``by`` is the leader epoch of the broker that deletes; with UNFENCED it deletes as Kafka does,
whatever broker leads the partition.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import LeaderEpoch
from milena.tiered.metadata.metadata_manager import Deposed
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    allowed,
)
from milena.tiered.shared.tier import Tier
from milena.tiered.store.remote_storage import RemoteStorageError, RetriableRemoteStorageError
from milena.tiered.work.fencing import accepted

_MARKED: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


async def delete_segment(
    tier: Tier, segment: RemoteLogSegmentMetadata, by: LeaderEpoch, *, custom_metadata: bytes | None = None
) -> None:
    """Delete one segment. ``custom_metadata``: for the store, if the segment's record has none. Raises
    RemoteStorageError, RemoteLogMetadataError."""
    await announce_deletion(tier, segment, by)
    await finish_deletion(tier, segment, by, custom_metadata=custom_metadata)


async def announce_deletion(tier: Tier, segment: RemoteLogSegmentMetadata, by: LeaderEpoch) -> None:
    """Publish DELETE_SEGMENT_STARTED. From now on this broker does not count the segment as a copy, unless the event is
    fenced. Raises RemoteLogMetadataError."""
    if not allowed(segment.state, RemoteLogSegmentState.DELETE_SEGMENT_STARTED):
        raise BrokenInvariant(f"segment {segment.segment_id} is deleted after {segment.state.name}")
    tier.indexes.remove((segment.id,))
    tier.unreliable.add(segment.partition, (segment.id,))
    await tier.metadata.update(update_of(tier, segment, _MARKED, by))
    try:
        accepted(tier, segment, _MARKED, by)
    except Deposed:
        known = tier.metadata.cache(segment.partition).get(segment.id)
        if known is not None and known.state is not _MARKED:
            tier.unreliable.discard(segment.partition, segment.id)
        raise


async def finish_deletion(
    tier: Tier, segment: RemoteLogSegmentMetadata, by: LeaderEpoch, *, custom_metadata: bytes | None = None
) -> None:
    """Delete the objects, and publish DELETE_SEGMENT_FINISHED. Raises RemoteStorageError, RemoteLogMetadataError."""
    accepted(tier, segment, _MARKED, by)
    meters = tier.meters.of(segment.partition.topic)
    meters.delete_requests.add()
    try:
        await tier.storage.delete(
            segment if custom_metadata is None else replace(segment, custom_metadata=custom_metadata)
        )
    except RetriableRemoteStorageError:
        raise
    except RemoteStorageError:
        meters.delete_errors.add()
        raise
    await tier.metadata.update(update_of(tier, segment, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, by))


def update_of(
    tier: Tier,
    segment: RemoteLogSegmentMetadata,
    state: RemoteLogSegmentState,
    by: LeaderEpoch,
    *,
    custom_metadata: bytes | None = None,
) -> RemoteLogSegmentUpdate:
    """Return the event with which this broker publishes the next state of ``segment``. ``custom_metadata``: None keeps
    the segment's."""
    return RemoteLogSegmentUpdate(
        segment.segment_id,
        tier.node_id,
        tier.runtime.clock.time_ms(),
        segment.custom_metadata if custom_metadata is None else custom_metadata,
        state,
        by,
    )
