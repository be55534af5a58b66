"""Updates of a log from the metadata of its segments in the tier (docs/kafka-semantics.md: Tasks of the tier)."""

from __future__ import annotations

from collections.abc import Container
from uuid import UUID

from milena.protocol.types import Offset
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.tiered_offsets import find_highest_remote_offset, remote_log_start
from milena.tiered.shared.tier import Tier
from milena.tiered.work.deletion_withdrawal import withdraw_deletions
from milena.tiered.work.fencing import fence
from milena.tiered.work.relisting import first_served, relist
from milena.tiered.work.roles import ReplicaRole


async def follow_round(tier: Tier, role: ReplicaRole) -> None:
    """Update a follower's highest copied offset, up to which its local segments may be deleted. Raises the errors in
    ``shared.tier.FAILURES``."""
    log = role.log
    if log is not None and tier.metadata.is_ready(role.partition):
        await update_from_metadata(tier, role, log)


async def update_from_metadata(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> bool:
    """Update the log from the metadata: its start in the tier, and the highest copied offset. Returns False if the role
    has ended in the meantime.

    A leader publishes its fence first. Raises KafkaError, RemoteLogMetadataError, RemoteStorageError.
    """
    if role.leads:
        await fence(tier, role, log)
        await withdraw_deletions(tier, role, log)
        await relist(tier, role, log)
        if not role.holds(log):
            return False
    cache = tier.metadata.cache(role.partition)
    if role.leads and role.started_log is not log:
        _find_log_start(tier, role, log)
        role.started_log = log
    if role.leads:
        _pass_deleted(cache, log)
    end = find_highest_remote_offset(cache, log.epochs, log_end=log.log_end_offset)
    tier.unreliable.prune(role.partition, cache)
    if end is not None:
        unreliable = {*tier.unreliable.of(role.partition), *(segment.id for segment in cache.at_risk())}
        log.set_highest_offset_in_remote_storage(_still_there(cache, log, end.offset, unreliable))
    return True


def _still_there(cache: RemoteLogMetadataCache, log: UnifiedLog, copied: Offset, unreliable: Container[UUID]) -> Offset:
    """Return the last offset up to which the tier contains the local log completely. ``copied``: the highest offset
    that was ever copied; ``unreliable``: ids of segments that may be deleted."""
    at = max(log.local_log_start_offset, log.epochs.entries[0].start)
    while at <= copied:
        served = cache.segment_for(at, leader_epochs=log.epochs.entries, log_end=Offset(copied + 1), without=unreliable)
        if served is None:
            return Offset(at - 1)
        at = Offset(served.last + 1)
    return copied


def _pass_deleted(cache: RemoteLogMetadataCache, log: UnifiedLog) -> None:
    """Raise the log start above segments that a former leader has deleted: one that does not know yet that it was
    replaced may continue to delete expired segments."""
    earliest = log.epochs.earliest
    if earliest is None or not earliest.start <= log.log_start_offset < log.local_log_start_offset:
        return
    first = first_served(cache, log)
    if first is not None:  # otherwise the contents of the tier are unknown
        log.update_log_start_from_remote_tier(first)


def _find_log_start(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> None:
    start = remote_log_start(tier.metadata.cache(role.partition), log.epochs)
    if start is None:
        earliest = log.epochs.earliest
        if (
            earliest is not None
            and earliest.start > log.log_start_offset
            and _reaches_below(tier.metadata.cache(role.partition), earliest.start)
        ):
            # The epochs of the segments in the tier were lost: none of them can be matched with this log.
            tier.events.error(
                "leader epochs do not reach back to the log start",
                topic=log.topic,
                partition=log.partition,
                log_start=log.log_start_offset,
                first_epoch=earliest.start,
            )
            return
        start = log.local_log_start_offset
    log.update_log_start_from_remote_tier(start)


def _reaches_below(cache: RemoteLogMetadataCache, offset: Offset) -> bool:
    """Whether the tier has records before ``offset``. The first epoch of a segment counts from its start: a segment may
    begin before the log start at the time of its copy."""
    return any(segment.end_offset < offset or segment.epochs[0].start < offset for segment in cache.segments())
