"""Republishes segments that a former leader may still delete, under new ids (``tiered.work.deletion_withdrawal``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from milena.protocol.types import Offset
from milena.storage.files.checkpoints import CorruptCheckpoint, decode_epochs
from milena.storage.files.producer_snapshot import CorruptSnapshot, decode_snapshot
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from milena.tiered.shared.tier import Tier
from milena.tiered.store.remote_storage import (
    LOG_SUFFIX,
    IndexType,
    RemoteResourceNotFound,
    RemoteStorageError,
    SegmentFiles,
)
from milena.tiered.work.copying import INTERVAL, Prepared, copy_segment
from milena.tiered.work.deletion import delete_segment
from milena.tiered.work.downloading import download_log
from milena.tiered.work.former_deletions import is_needed
from milena.tiered.work.roles import ReplicaRole

PREFIX: Final = "overruled-segment"
"""The prefix of the files in the partition's folder from which a segment is copied again. Remaining files of an earlier
attempt are overwritten."""


class DamagedSegment(RemoteStorageError):
    """A segment cannot be copied as it is in the tier."""


async def republish(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> None:
    """Copy the segments at risk that the log needs to new segments, and delete the old ones. A segment that is damaged
    in the tier stays as it is. Offsets that are still local are copied from the local segments instead (``copying``).
    Raises the errors in ``shared.tier.FAILURES``."""
    place = _path(log, LOG_SUFFIX)
    if place in tier.in_use:
        return  # a round of the replica's former role still uses the files
    tier.in_use.add(place)
    try:
        await _republish(tier, role, log)
    finally:
        tier.in_use.discard(place)


async def _republish(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> None:
    cache = tier.metadata.cache(role.partition)
    for segment in sorted(cache.at_risk(), key=lambda one: one.start_offset):
        if not role.holds(log) or not tier.in_session() or not log.epochs.entries:
            return
        at_risk = {one.id for one in cache.at_risk()}
        first = Offset(max(log.log_start_offset, log.epochs.entries[0].start))
        end = log.local_log_start_offset
        if is_needed(cache, segment, log.epochs.entries, first, end, at_risk):
            if not (tier.copies.may_begin and role.attempts.may_begin):
                return
            if not await _copy(tier, role, log, segment):
                continue
        if role.holds(log) and tier.in_session():
            await delete_segment(tier, segment, role.leader_epoch)


async def _copy(tier: Tier, role: ReplicaRole, log: UnifiedLog, segment: RemoteLogSegmentMetadata) -> bool:
    """Copy a segment under a new id, unless the role has ended. Returns whether the old one can be deleted. If its
    objects are missing, the former leader has deleted them, and only the metadata is left to delete."""
    fields = {"topic": log.topic, "partition": log.partition, "segment": str(segment.id)}
    try:
        files = await _fetch(tier, log, segment)
        if not role.holds(log):
            return False
        republished = replace(
            segment,
            segment_id=RemoteLogSegmentId(role.partition, tier.runtime.random.uuid()),
            broker_id=tier.node_id,
            event_timestamp_ms=tier.runtime.clock.time_ms(),
            custom_metadata=None,
            state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            txn_index_empty=files.txn_index is None,
            leader_epoch=role.leader_epoch,
            copied=False,
            at_risk=False,
        )
        tier.copy_quota.record(republished.size, republished.event_timestamp_ms)
        interval = tier.config().get_int(INTERVAL) / 1000
        with tier.copies.attempt(interval), role.attempts.attempt(interval):
            await copy_segment(tier, role, log, Prepared(republished, files))
    except RemoteResourceNotFound as error:
        tier.events.error("segment was deleted by a former leader", **fields, reason=str(error))
        return True
    except DamagedSegment as error:
        tier.events.error("segment is not republished", **fields, reason=str(error))
        return False
    finally:
        await tier.runtime.disk.offload(_clean, tier, log)
    tier.events.info("segment republished", **fields, as_=str(republished.id))
    return True


async def _fetch(tier: Tier, log: UnifiedLog, segment: RemoteLogSegmentMetadata) -> SegmentFiles:
    """Download the files of a segment to this broker's disk. Raises DamagedSegment if the leader epochs or the
    producers are damaged, or if an index is missing although the log is there: a deletion removes the log first. Raises
    RemoteResourceNotFound without a log, RemoteStorageError, OSError."""
    disk = tier.runtime.disk
    await disk.offload(_clean, tier, log)
    indexes = {}
    for index in IndexType:
        if index is IndexType.TRANSACTION and segment.txn_index_empty:
            continue
        try:
            indexes[index] = await tier.storage.fetch_index(segment, index)
        except RemoteResourceNotFound as error:
            if index is IndexType.TRANSACTION:
                continue  # metadata of Kafka before 4.0 does not say that there is no transaction index
            if not segment.size:
                raise
            await (await tier.storage.fetch(segment, 0, 0)).read()
            raise DamagedSegment(f"damaged in the tier: {error}") from error
    try:
        decode_epochs(indexes[IndexType.LEADER_EPOCH])
        decode_snapshot(indexes[IndexType.PRODUCER_SNAPSHOT])
    except (CorruptCheckpoint, CorruptSnapshot) as error:
        raise DamagedSegment(f"damaged in the tier: {error}") from error
    await download_log(tier, segment, _path(log, LOG_SUFFIX))
    for index, data in indexes.items():
        await disk.offload(disk.write_atomic, _path(log, index.value), data, sync=False)
    return SegmentFiles(
        _path(log, LOG_SUFFIX),
        _path(log, IndexType.OFFSET.value),
        _path(log, IndexType.TIMESTAMP.value),
        _path(log, IndexType.TRANSACTION.value) if IndexType.TRANSACTION in indexes else None,
        _path(log, IndexType.PRODUCER_SNAPSHOT.value),
        indexes[IndexType.LEADER_EPOCH],
    )


def _path(log: UnifiedLog, suffix: str) -> str:
    return f"{log.folder}/{PREFIX}-{suffix[1:]}"


def _clean(tier: Tier, log: UnifiedLog) -> None:
    disk = tier.runtime.disk
    for suffix in (LOG_SUFFIX, *(index.value for index in IndexType)):
        if disk.exists(_path(log, suffix)):
            disk.remove(_path(log, suffix))
