"""Copying a leader's closed segments to the tier, oldest first (docs/kafka-semantics.md: Copy eligibility, Copying a
segment).

A segment is announced (COPY_SEGMENT_STARTED), copied, and confirmed (COPY_SEGMENT_FINISHED); each step is awaited
before the next. A failed or interrupted copy is retried with another segment id. The objects of the failed one are
deleted at once after an error that is not retriable. After a retriable error or a crash they stay until the hourly
sweep (``retention.unfinished_copies``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import Offset
from milena.storage.files.checkpoints import encode_epochs
from milena.storage.files.names import LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from milena.storage.log import tiering
from milena.storage.log.segment import Segment
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.descriptions import description_of
from milena.tiered.metadata.metadata_manager import Deposed
from milena.tiered.segments.eligibility import CandidateSegment, CopyLag, candidates, due
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from milena.tiered.shared.tier import FAILURES, Tier
from milena.tiered.store.remote_storage import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
    SegmentFiles,
)
from milena.tiered.work.deletion import delete_segment, update_of
from milena.tiered.work.fencing import accepted
from milena.tiered.work.log_updates import update_from_metadata
from milena.tiered.work.roles import ReplicaRole

QUOTA_STEP: Final = 1.0
"""Seconds between two checks while the quota delays a copy."""
INTERVAL: Final = "remote.log.manager.task.interval.ms"
CUSTOM_METADATA_LIMIT: Final = "remote.log.metadata.custom.metadata.max.bytes"


class CustomMetadataTooLarge(RemoteStorageError):
    """The store returned more custom metadata than allowed."""

    def __init__(self, custom_metadata: bytes, limit: int) -> None:
        super().__init__(
            f"the store returned {len(custom_metadata)} bytes of custom metadata; {CUSTOM_METADATA_LIMIT} "
            f"allows {limit}"
        )
        self.custom_metadata = custom_metadata


@dataclass(frozen=True, slots=True)
class Prepared:
    """A segment's metadata as announced, and the files to copy."""

    metadata: RemoteLogSegmentMetadata
    files: SegmentFiles


async def copy_round(tier: Tier, role: ReplicaRole) -> None:
    """Copy the eligible segments. Raises the errors in ``FAILURES``."""
    log = role.log
    if log is None or not role.may_copy or not log.remote_copy_enabled or not tier.metadata.is_ready(role.partition):
        return
    if not await update_from_metadata(tier, role, log):
        return
    found = due_segments(log, tier.runtime.clock.time_ms())
    if found:
        await check_place(tier, role)  # before anything is announced
        await _remove_work_orders(tier, role)
    for candidate in found:
        await wait_for_quota(tier, role)
        if not role.holds(log) or not log.remote_copy_enabled:
            return
        segment = _segment_at(log, candidate)
        if segment is None:
            return  # it was deleted or truncated while an earlier segment was copied
        if candidate.end > log.last_stable_offset:
            raise BrokenInvariant(f"segment {candidate} of {log}, which is stable up to {log.last_stable_offset}")
        if segment.size:
            if not (tier.copies.may_begin and role.attempts.may_begin):
                return
            tier.copy_quota.record(segment.size, tier.runtime.clock.time_ms())
            interval = tier.config().get_int(INTERVAL) / 1000
            with tier.copies.attempt(interval), role.attempts.attempt(interval):
                await copy_segment(tier, role, log, prepare(tier, role, log, segment, candidate.end))
            if not role.holds(log):
                return


def due_segments(log: UnifiedLog, now_ms: int) -> list[CandidateSegment]:
    """Return the segments to copy now, oldest first: those that are eligible and have reached the lag of the topic's
    configuration."""
    found = candidates(
        [segment.base_offset for segment in log.segments],
        copied=log.highest_offset_in_remote_storage,
        log_start=log.log_start_offset,
        stable=log.last_stable_offset,
    )
    lag = CopyLag(log.config.copy_lag_ms, log.config.copy_lag_bytes)
    if not found or lag.ms == 0 or lag.bytes == 0:
        return found
    later = log.segments.since(found[0].base)
    return found[: due(later, lag, now_ms=now_ms)]


def _segment_at(log: UnifiedLog, candidate: CandidateSegment) -> Segment | None:
    index = log.segments.floor_index(candidate.base)
    if index < 0 or log.segments[index].base_offset != candidate.base or index + 1 >= len(log.segments):
        return None
    return log.segments[index] if log.segments[index + 1].base_offset == candidate.end else None


async def check_place(tier: Tier, role: ReplicaRole) -> None:
    """Check that the store has this cluster's tier. A store without a tier is accepted as new only if the metadata
    topic is empty: otherwise another broker may have copied segments to a tier that is not mounted here. Raises
    RemoteStorageError."""
    try:
        try:
            await tier.storage.check()
        except RetriableRemoteStorageError:
            if tier.was_seen or not await tier.metadata.is_empty():
                raise
            tier.may_begin = True
            await tier.storage.check()
        tier.was_seen, tier.may_begin = True, False
    except RemoteStorageError:
        tier.meters.of(role.replica.topic).copy_errors.add()
        raise


async def _remove_work_orders(tier: Tier, role: ReplicaRole) -> None:
    """Remove the work orders of earlier versions from the tier. A failure is logged and does not delay the copies; the
    next start tries again."""
    if tier.work_orders_removed:
        return
    tier.work_orders_removed = True
    try:
        if await tier.storage.remove_work_orders():
            tier.events.info("work orders of an earlier version removed from the tier")
    except RemoteResourceNotFound:
        pass  # another broker is removing them
    except RemoteStorageError as error:
        tier.report("work orders of an earlier version not removed", role.replica, error)


async def wait_for_quota(tier: Tier, role: ReplicaRole) -> None:
    while not role.ended and (excess := tier.copy_quota.throttle_ms(tier.runtime.clock.time_ms())) > 0:
        tier.meters.copy_throttle_time.record(excess)
        await role.pause(QUOTA_STEP)


def prepare(tier: Tier, role: ReplicaRole, log: UnifiedLog, segment: Segment, end: Offset) -> Prepared:
    """Return the metadata and files of the closed ``segment`` that ends before ``end``. Raises CorruptBatch, OSError,
    and KafkaError if none of its leader epochs is known."""
    disk = log.context.disk
    index = log.segments.floor_index(segment.base_offset)
    if log.segments[index] is not segment or log.segments.end_of(index, log.log_end_offset) != end:
        raise BrokenInvariant(f"segment {segment.base_offset} to {end} is not of {log}")
    epochs = tuple(log.epochs.entries_in_range(segment.base_offset, end))
    if not epochs:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no leader epoch of {segment.base_offset} to {end} is known")
    segment.write_indexes()
    aborted = segment.path(TXN_INDEX)
    has_aborted = disk.exists(aborted)
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(role.partition, tier.runtime.random.uuid()),
        segment.base_offset,
        Offset(end - 1),
        tier.node_id,
        segment.largest_timestamp(),
        tier.runtime.clock.time_ms(),
        epochs,
        segment.size,
        None,
        RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        not has_aborted,
        role.leader_epoch,
    )
    files = SegmentFiles(
        segment.path(LOG),
        segment.path(OFFSET_INDEX),
        segment.path(TIME_INDEX),
        aborted if has_aborted else None,
        tiering.snapshot_at(log, end),
        encode_epochs(log.epochs.entries_in_range(Offset(-1), end)),
    )
    return Prepared(metadata, files)


async def copy_segment(
    tier: Tier,
    role: ReplicaRole,
    log: UnifiedLog,
    prepared: Prepared,
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Copy one segment. Raises the errors in ``FAILURES``.

    The copy is deleted if the store failed with an error that is not retriable, if the role has ended, or if it is no
    longer ``wanted``. After a retriable error, or an error of the metadata, it stays: a later round removes it.
    """
    metadata = prepared.metadata
    meters = tier.meters.of(metadata.partition.topic)
    role.copying.add(metadata.id)
    try:
        await tier.metadata.add(metadata)
        accepted(tier, metadata, RemoteLogSegmentState.COPY_SEGMENT_STARTED, metadata.leader_epoch)
        meters.copy_requests.add()
        is_wanted = role.holds(log) and wanted()
        custom = await _store(tier, log, prepared) if is_wanted else None
        if not (is_wanted and role.holds(log) and wanted()):
            await _discard(tier, role, metadata)
            return
        by, finished = role.leader_epoch, RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        await tier.metadata.update(update_of(tier, metadata, finished, by, custom_metadata=custom))
        accepted(tier, metadata, finished, by)
    except CustomMetadataTooLarge as error:
        role.may_copy = False
        meters.copy_errors.add()
        await _discard(tier, role, metadata, error.custom_metadata)
        raise
    except RetriableRemoteStorageError:
        meters.copy_errors.add()
        raise  # nothing is deleted: the next attempt has another segment id
    except RemoteStorageError:
        meters.copy_errors.add()
        await _discard(tier, role, metadata)
        raise
    except Deposed:
        await _delete_unknown(tier, role, metadata)
        raise
    finally:
        role.copying.discard(metadata.id)
    meters.copied_bytes.add(metadata.size)
    if role.holds(log):
        log.raise_highest_offset_in_remote_storage(metadata.end_offset)


async def _store(tier: Tier, log: UnifiedLog, prepared: Prepared) -> bytes | None:
    metadata, files = prepared.metadata, prepared.files
    if metadata.cleaned or log.config.compacted or log.cleaned_to is not None:
        files = replace(files, description=description_of(metadata))
    custom = await tier.storage.copy(metadata, files)
    limit = tier.config().get_int(CUSTOM_METADATA_LIMIT)
    if custom is not None and len(custom) > limit:
        raise CustomMetadataTooLarge(custom, limit)
    return custom


async def _delete_unknown(tier: Tier, role: ReplicaRole, metadata: RemoteLogSegmentMetadata) -> None:
    """Delete the objects of a copy that the metadata does not have. A later leader has deleted the segment, perhaps
    before all objects were stored. If it did so because the topic was deleted, no other broker looks for them."""
    try:
        if tier.metadata.cache(metadata.partition).get(metadata.id) is None:
            await tier.storage.delete(metadata)
    except FAILURES as error:
        tier.report("remains of a failed copy not deleted", role.replica, error)


async def _discard(
    tier: Tier, role: ReplicaRole, metadata: RemoteLogSegmentMetadata, custom_metadata: bytes | None = None
) -> None:
    """Delete the objects of a failed copy. If that fails too, a later round of the expiration does it."""
    try:
        await delete_segment(tier, metadata, role.leader_epoch, custom_metadata=custom_metadata)
    except FAILURES as error:
        tier.report("remains of a failed copy not deleted", role.replica, error)
