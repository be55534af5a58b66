"""Fencing of former leaders in the tier: publishing the leader epoch fence, and checking that a leader's own events are
not fenced (docs/decisions/2026-11-22-claims-and-marks.md)."""

from __future__ import annotations

from milena.protocol.types import ZERO_UUID, LeaderEpoch
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.metadata_manager import Deposed
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
)
from milena.tiered.shared.tier import Tier
from milena.tiered.work.roles import ReplicaRole


async def fence(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> None:
    """Publish a leader epoch fence unless this leader has published one: from then on, events of former leaders have no
    effect. Without segments none is needed: the first event of a copy has the same effect. The caller checks
    afterwards that the role still holds. Raises RemoteLogMetadataError, and Deposed if there is a fence of a later
    leader."""
    async with role.fencing:
        cache = tier.metadata.cache(role.partition)
        if role.holds(log) and len(cache) and cache.fence_epoch < role.leader_epoch:
            await tier.metadata.update(
                RemoteLogSegmentUpdate(
                    RemoteLogSegmentId(role.partition, ZERO_UUID),
                    tier.node_id,
                    tier.runtime.clock.time_ms(),
                    None,
                    RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,
                    role.leader_epoch,
                )
            )
            cache = tier.metadata.cache(role.partition)
    if cache.fence_epoch > role.leader_epoch:
        raise deposed(cache, role.leader_epoch)


def accepted(
    tier: Tier, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, by: LeaderEpoch
) -> RemoteLogSegmentMetadata:
    """Return the segment as it is known after the last event of this broker, which was read back and set the segment to
    ``state`` in leader epoch ``by``. Raises Deposed if the event was fenced, or if an event of another broker came
    first; MetadataNotReady."""
    cache = tier.metadata.cache(segment.partition)
    known = cache.get(segment.id)
    if by == UNFENCED:
        return segment if known is None else known
    if cache.fence_epoch > by:
        raise deposed(cache, by)
    if known is None or known.state is not state or known.leader_epoch != by:
        now = "not known any more" if known is None else f"{known.state.name} in leader epoch {known.leader_epoch}"
        raise Deposed(f"segment {segment.id} is {now}, and not {state.name} in {by}: another broker works on it")
    return known


def deposed(cache: RemoteLogMetadataCache, by: LeaderEpoch) -> Deposed:
    return Deposed(f"leader epoch {cache.fence_epoch} has fenced the partition's tier, but this broker leads in {by}")
