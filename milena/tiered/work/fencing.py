"""A leader's claim to its partition's tier, and whether what it has published is accepted
(docs/decisions/2026-11-22-claims-and-marks.md)."""

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
    """Publish a claim unless this leader has one, so that nothing of former leaders can be added from then on. Without
    segments none is needed: the first event of an upload is one. The caller checks afterwards that the role still
    holds. Raises RemoteLogMetadataError, Deposed if a later leader was here."""
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
    """The segment as it is known after the author's last event, which was read back: in ``state``, because of that
    event. Raises Deposed if the event is void or somebody else's is in its way, MetadataNotReady."""
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
    return Deposed(
        f"leader epoch {cache.fence_epoch} has claimed the partition's tier, which this broker leads in {by}"
    )
