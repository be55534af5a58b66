"""Deleting expired segments from the tier, and all segments of a partition that is removed (docs/kafka-semantics.md:
Tasks of the tier, Expiration)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from milena.protocol.types import LeaderEpoch
from milena.storage.log import tiering
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.shared.tier import FAILURES, Tier
from milena.tiered.work.deletion import announce_deletion, finish_deletion
from milena.tiered.work.log_updates import update_from_metadata
from milena.tiered.work.republishing import republish
from milena.tiered.work.retention import LogView, decide, limits, unfinished_copies
from milena.tiered.work.roles import ReplicaRole
from milena.tiered.work.superseded import superseded

SWEEP_INTERVAL: Final = 3600.0
"""Seconds between two searches for the remains of failed copies."""


async def expire_round(tier: Tier, role: ReplicaRole) -> None:
    """Delete expired and superseded segments of a leader, and republish segments at risk. If the broker's session with
    the controller may have expired, another broker may lead: then nothing is deleted, and the log start stays. Raises
    the errors in ``FAILURES``."""
    log = role.log
    if log is None or not tier.in_session() or not tier.metadata.is_ready(role.partition):
        return
    # A leader that has not copied anything yet would count the same segments locally and remotely (KAFKA-20732).
    if not await update_from_metadata(tier, role, log) or not tier.in_session():
        return
    clock = tier.runtime.clock
    began = clock.monotonic()
    cache = tier.metadata.cache(role.partition)
    expiration = decide(cache, view_of(log), now=clock.time_ms(), copying=role.copying, validity=role.validity)
    figures = role.figures
    figures.computation_ms = (clock.monotonic() - began) * 1000
    figures.remote_segments, figures.remote_size = len(cache), expiration.remote_size
    figures.retained_size = expiration.retained_size
    _report_lost_values(tier, role, log)
    if expiration.log_start is not None:
        log.update_log_start_from_remote_tier(expiration.log_start)
    delete = {one.id: one for one in (*expiration.delete, *expiration.dangling, *superseded(tier, role, log))}
    await _delete_all(tier, role, log, list(delete.values()))
    if role.holds(log):
        await republish(tier, role, log)
    if role.holds(log) and (role.swept_at is None or clock.monotonic() - role.swept_at >= SWEEP_INTERVAL):
        role.swept_at = clock.monotonic()
        await _delete_unfinished(tier, role, log)
        if tier.in_session():
            await _sweep(tier, role)


def _report_lost_values(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> None:
    role.figures.lost_values, new = role.lost_values.look(tier.metadata.cache(role.partition), log)
    for first, last, lost_first, lost_last in new:
        tier.events.error(
            "records were cleaned because of others that an unclean election has truncated",
            topic=role.replica.topic,
            partition=role.replica.index,
            first=first,
            last=last,
            lost_first=lost_first,
            lost_last=lost_last,
        )


async def _delete_unfinished(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> None:
    found = unfinished_copies(
        tier.metadata.cache(role.partition).segments(),
        copied=log.highest_offset_in_remote_storage,
        before_ms=tier.runtime.clock.time_ms() - int(SWEEP_INTERVAL * 1000),
        copying=role.copying,
    )
    await _delete_all(tier, role, log, found)


async def _sweep(tier: Tier, role: ReplicaRole) -> None:
    """Remove objects of copies that are not listed, for example of a copy that ended after its segment was deleted."""
    known = {segment.id for segment in tier.metadata.cache(role.partition).segments()} | role.copying
    for segment in await tier.storage.sweep_incomplete(role.partition, known):
        tier.events.warning(
            "remains of a failed copy removed",
            topic=role.replica.topic,
            partition=role.replica.index,
            segment=str(segment.id),
        )


def view_of(log: UnifiedLog) -> LogView:
    retention_ms, retention_bytes = limits(log.config)
    return LogView(
        log.epochs.entries,
        log.log_start_offset,
        log.log_end_offset,
        sum(segment.size for segment in tiering.only_local(log)),
        retention_ms,
        retention_bytes,
        log.highest_offset_in_remote_storage,
    )


async def _delete_all(
    tier: Tier, role: ReplicaRole, log: UnifiedLog, segments: Sequence[RemoteLogSegmentMetadata]
) -> None:
    figures = role.figures
    figures.delete_segments, figures.delete_bytes = len(segments), sum(segment.size for segment in segments)
    for segment in segments:
        if not role.holds(log) or not tier.in_session():
            return
        by = role.leader_epoch
        await announce_deletion(tier, segment, by)
        if not tier.in_session():
            return
        await finish_deletion(tier, segment, by)
        figures.delete_segments -= 1
        figures.delete_bytes -= segment.size
        tier.events.info(
            "remote segment deleted",
            topic=role.replica.topic,
            partition=role.replica.index,
            first=segment.start_offset,
            last=segment.end_offset,
        )


async def erase(
    tier: Tier,
    role: ReplicaRole,
    segments: Sequence[RemoteLogSegmentMetadata],
    by: Callable[[], LeaderEpoch],
    still_wanted: Callable[[], bool] = lambda: True,
    may_delete: Callable[[], bool] = lambda: True,
) -> list[RemoteLogSegmentMetadata]:
    """Delete all ``segments`` of a partition that is no longer tiered, in any state, as long as ``still_wanted``.
    ``by``: the leader epoch of the deletions; ``may_delete``: whether this broker may delete now. Returns the segments
    that are left because of errors or ``may_delete``."""
    left: list[RemoteLogSegmentMetadata] = []
    announced = []
    for segment in segments:
        if not still_wanted():
            break
        if not may_delete():
            left.append(segment)
            continue
        try:
            await announce_deletion(tier, segment, by())
            announced.append(segment)
        except FAILURES as error:
            tier.report("remote segment not deleted", role.replica, error)
            left.append(segment)
    for segment in announced:
        try:
            await finish_deletion(tier, segment, by())
        except FAILURES as error:
            tier.report("remote segment not deleted", role.replica, error)
            left.append(segment)
    return [segment for segment in left if not _is_gone(tier, segment)]


def _is_gone(tier: Tier, segment: RemoteLogSegmentMetadata) -> bool:
    """Whether the segment is no longer listed: another broker has deleted it."""
    return tier.metadata.is_ready(segment.partition) and tier.metadata.cache(segment.partition).get(segment.id) is None
