"""Segments that lie whole in the tier, and that the metadata does not know, or only as copies that began.

So it is where records of the metadata topic were lost, as with all disks of its replicas, or where somebody deleted it.
Local segments have gone on their word: before a leader says that its log begins later, it looks into the tier, and
tells anew of what it finds there and has read to its end. Kafka's leaders do not look: the log begins with what is
local, and the files stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from milena.protocol.types import Offset
from milena.storage.log.partition_log import PartitionLog
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.rescue.epoch_history import Lineage, readable
from milena.tiered.rescue.restorable_segments import Restorable, ended, lacking, whole_segments
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.shared.tier import Tier
from milena.tiered.store.remote_storage import LOG_SUFFIX
from milena.tiered.work.deletion import update_of
from milena.tiered.work.roles import ReplicaRole

_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED


def first_served(cache: RemoteLogMetadataCache, log: PartitionLog) -> Offset | None:
    """The first offset from the log's start to its local start that the tier serves; None where it serves none."""
    every = cache.served(log.log_start_offset, leader_epochs=log.epochs.entries, log_end=log.local_log_start_offset)
    first = next(every, None)
    return None if first is None else first.first


async def adopt(tier: Tier, role: ReplicaRole, log: PartitionLog) -> None:
    """What serves an offset of this leader's log that is neither local nor served by what the metadata knows is told of
    there. Who awaits this looks whether the role still holds. Raises RemoteStorageError, RemoteLogMetadataError: then
    nothing is known, and the log's start must stay."""
    async with role.adopting:
        if not role.holds(log) or not _is_lacking(role, tier.metadata.cache(role.partition), log):
            return
        for segment in await _unknown(tier, role, log):
            if not role.holds(log):
                return
            await _tell(tier, role, segment)


def _is_lacking(role: ReplicaRole, cache: RemoteLogMetadataCache, log: PartitionLog) -> bool:
    """At the beginning of a leadership all of the log is looked at, then only its start."""
    at, end = log.log_start_offset, log.local_log_start_offset
    if at >= end:
        return False
    if role.started_log is log:
        earliest, first = log.epochs.earliest, first_served(cache, log)
        return first not in (None, at) and earliest is not None and earliest.start <= at
    for one in cache.served(at, leader_epochs=log.epochs.entries, log_end=end):
        if one.first > at:
            return True
        at = Offset(one.last + 1)
    return at < end


async def _unknown(tier: Tier, role: ReplicaRole, log: PartitionLog) -> Sequence[RemoteLogSegmentMetadata]:
    """What of the tier serves more than the metadata's segments do, as it is after its copy."""
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
    settled |= _settled(cache)  # some may have come, or gone, while the files were read
    checked = [ended(cache.get(one.id), one, found) for one in sound if one.id not in settled]
    for why in found.unused:
        tier.events.error(
            "segment that the metadata does not know is not adopted",
            topic=log.topic,
            partition=log.partition,
            reason=why,
        )
    lineage = Lineage(
        tuple(log.epochs.entries), log.local_log_start_offset, "this leader's log", log_start=log.log_start_offset
    )
    candidates = [one for one in checked if one is not None]
    return sorted(lacking(lineage, readable(cache.segments()), candidates), key=lambda one: one.start_offset)


def _settled(cache: RemoteLogMetadataCache) -> set[UUID]:
    """Known segments of which more is told than that a copy began."""
    return {one.id for one in cache.segments() if one.state is not _STARTED}


async def _tell(tier: Tier, role: ReplicaRole, segment: RemoteLogSegmentMetadata) -> None:
    began = replace(segment, state=_STARTED, broker_id=tier.node_id, event_timestamp_ms=tier.runtime.clock.time_ms())
    if tier.metadata.cache(role.partition).get(segment.id) is None:
        await tier.metadata.add(began)
    await tier.metadata.update(update_of(tier, began, RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
    tier.events.warning(
        "a whole segment that the metadata did not know is adopted",
        topic=role.replica.topic,
        partition=role.replica.index,
        segment=str(segment.id),
        first=segment.start_offset,
        last=segment.end_offset,
    )
