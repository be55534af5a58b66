"""Withdraws deletions by former leaders that the new leader does not accept
(docs/decisions/2026-11-22-claims-and-marks.md).

The withdrawal makes the segment readable again at once. But the former leader may be paused before the deletion and
still execute it later. So the segment does not count as a copy of local segments, and ``republishing`` copies it under
another id, which no former leader knows, and deletes the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from milena.storage.log.unified_log import UnifiedLog
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.segments.tiered_offsets import find_highest_remote_offset
from milena.tiered.shared.tier import Tier
from milena.tiered.work.deletion import update_of
from milena.tiered.work.former_deletions import unjustified
from milena.tiered.work.retention import LogView, limits
from milena.tiered.work.roles import ReplicaRole

_COPIED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


async def withdraw_deletions(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> None:
    """Withdraw the deletions by former leaders that this one does not accept. The leader has published its fence. The
    caller checks afterwards that the role still holds. Raises RemoteLogMetadataError."""
    async with role.fencing:
        if not role.holds(log) or role.started_log is log:
            return
        for segment in _unjustified(tier, role, log):
            if not role.holds(log):
                return
            update = update_of(tier, segment, _COPIED, role.leader_epoch)
            await tier.metadata.update(replace(update, republishes=True))
            tier.events.warning(
                "deletion by a former leader withdrawn",
                topic=log.topic,
                partition=log.partition,
                segment=str(segment.id),
                first=segment.start_offset,
                last=segment.end_offset,
                leader_epoch=segment.leader_epoch,
            )


def _unjustified(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> Sequence[RemoteLogSegmentMetadata]:
    cache = tier.metadata.cache(role.partition)
    epochs: Sequence[EpochEntry] = log.epochs.entries
    copied = find_highest_remote_offset(cache, log.epochs, log_end=log.log_end_offset)
    local = [segment for segment in log.segments if copied is None or segment.base_offset > copied.offset]
    retention_ms, retention_bytes = limits(log.config)
    view = LogView(
        epochs,
        log.log_start_offset,
        log.log_end_offset,
        sum(segment.size for segment in local),
        retention_ms,
        retention_bytes,
        None if copied is None else copied.offset,
    )
    now = tier.runtime.clock.time_ms()
    return unjustified(cache, view, log.local_log_start_offset, by=role.leader_epoch, now=now)
