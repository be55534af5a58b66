"""Lists complete segments in the tier again that the metadata does not list, or only as started copies.

Such segments exist if records of the metadata topic were lost, for example with all disks of its replicas, or if the
topic was deleted. The brokers have deleted the local segments because of those records. So before a leader raises its
log start, it searches the tier, reads such segments completely, and publishes their metadata again. Kafka's leaders do
not search: the log then begins with the local segments, and the objects remain in the tier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from milena.protocol.types import Offset
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.rebuilding.epoch_chains import Lineage, readable
from milena.tiered.rebuilding.usable_segments import Restorable, as_finished, lacking, whole_segments
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.shared.tier import Tier
from milena.tiered.store.remote_storage import LOG_SUFFIX
from milena.tiered.work.deletion import update_of
from milena.tiered.work.roles import ReplicaRole

_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED


def first_served(cache: RemoteLogMetadataCache, log: UnifiedLog) -> Offset | None:
    """Return the first offset between the log start and the local log start that the tier serves; None if there is
    none."""
    every = cache.served(log.log_start_offset, leader_epochs=log.epochs.entries, log_end=log.local_log_start_offset)
    first = next(every, None)
    return None if first is None else first.first


async def relist(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> None:
    """Publish the metadata of segments that serve offsets of this leader's log which are neither local nor served by
    known segments. The caller checks afterwards that the role still holds. Raises RemoteStorageError,
    RemoteLogMetadataError: then the contents are unknown, and the log start must not move."""
    async with role.relisting:
        if not role.holds(log) or not _is_lacking(role, tier.metadata.cache(role.partition), log):
            return
        for segment in await _unknown(tier, role, log):
            if not role.holds(log):
                return
            await _publish(tier, role, segment)


def _is_lacking(role: ReplicaRole, cache: RemoteLogMetadataCache, log: UnifiedLog) -> bool:
    """Whether offsets are missing: at the start of a leadership in the whole log, later only at its start."""
    at, end = log.log_start_offset, log.local_log_start_offset
    if at >= end:
        return False
    if role.started_log is log:
        earliest, first = log.epochs.earliest, first_served(cache, log)
        return first not in (None, at) and earliest is not None and earliest.start <= at
    for served in cache.served(at, leader_epochs=log.epochs.entries, log_end=end):
        if served.first > at:
            return True
        at = Offset(served.last + 1)
    return at < end


async def _unknown(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> Sequence[RemoteLogSegmentMetadata]:
    """Return metadata of the segments in the tier that serve offsets which no listed segment serves."""
    cache = tier.metadata.cache(role.partition)
    settled = _settled(cache)
    stored = [
        one
        for one in await tier.storage.segments(role.partition)
        if one.segment_id.id not in settled | role.copying
        and one.start_offset < log.local_log_start_offset
        and LOG_SUFFIX in one.objects
    ]
    found = Restorable()
    sound = await whole_segments(tier.storage, stored, found)
    settled |= _settled(cache)  # some may have appeared or disappeared while the files were read
    checked = [as_finished(cache.get(one.id), one, found) for one in sound if one.id not in settled]
    for why in found.unused:
        tier.events.error(
            "segment without metadata not used",
            topic=log.topic,
            partition=log.partition,
            reason=why,
        )
    lineage = Lineage(
        tuple(log.epochs.entries), log.local_log_start_offset, "this leader's log", log_start=log.log_start_offset
    )
    candidates = [one for one in checked if one is not None]
    found_lacking = lacking(lineage, readable(cache.segments()), candidates, cache.cleanings)
    return sorted(found_lacking, key=lambda one: one.start_offset)


def _settled(cache: RemoteLogMetadataCache) -> set[UUID]:
    """The ids of listed segments in a later state than COPY_SEGMENT_STARTED."""
    return {segment.id for segment in cache.segments() if segment.state is not _STARTED}


async def _publish(tier: Tier, role: ReplicaRole, segment: RemoteLogSegmentMetadata) -> None:
    by, now = role.leader_epoch, tier.runtime.clock.time_ms()
    began = replace(segment, state=_STARTED, broker_id=tier.node_id, event_timestamp_ms=now, leader_epoch=by)
    if tier.metadata.cache(role.partition).get(segment.id) is None:
        await tier.metadata.add(began)
    await tier.metadata.update(update_of(tier, began, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, by))
    tier.events.warning(
        "segment without metadata listed again",
        topic=role.replica.topic,
        partition=role.replica.index,
        segment=str(segment.id),
        first=segment.start_offset,
        last=segment.end_offset,
    )
