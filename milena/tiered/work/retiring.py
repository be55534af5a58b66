"""Segments that serve no more, since a cleaned one has taken their place or since their own map is rejected: they are
deleted after ``remote.log.compaction.source.retention.ms``, so that readers which are in them finish."""

from __future__ import annotations

from typing import Final

from milena.protocol.types import Offset
from milena.storage.log.partition_log import PartitionLog
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.shared.tier import Tier
from milena.tiered.work.marks import is_needed
from milena.tiered.work.roles import ReplicaRole

DELAY: Final = "remote.log.compaction.source.retention.ms"
_COPIED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_MARKED: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


def retired(tier: Tier, role: ReplicaRole, log: PartitionLog) -> list[RemoteLogSegmentMetadata]:
    """The segments that are to be deleted now. The delay counts from when this leader has first met them; none goes
    that has records of this log which no other segment serves: that must not be, and then its files are the last. Those
    that a former leader has marked are among them: they may lie anywhere in the log, not just before its start."""
    cache, now = tier.metadata.cache(role.partition), tier.runtime.clock.monotonic()
    if not cache.cleanings or not log.epochs.entries:
        return []
    listed = cache.segments()
    found = [one for one in listed if one.state is _COPIED and not cache.serves(one)]
    marked = [one for one in listed if one.state is _MARKED and one.id not in role.copying]
    role.retiring = {one.id: role.retiring.get(one.id, now) for one in found}
    delay = tier.config().get_int(DELAY) / 1000
    due = [one for one in found if now - role.retiring[one.id] >= delay]
    epochs = log.epochs.entries
    start, end = max(log.log_start_offset, epochs[0].start), log.local_log_start_offset
    return marked + [
        one
        for one in due
        if not is_needed(
            cache, one, epochs, max(start, one.start_offset), min(end, Offset(one.end_offset + 1)), frozenset()
        )
    ]
