"""Selects superseded segments, which are no longer read: a cleaned segment has replaced them, their own cleaner-offset
map is rejected, or cleaned segments have all of their offsets (a second copy of a local segment may finish after the
first one was cleaned). They are deleted after ``remote.log.compaction.source.retention.ms``, so that consumers that
read them can finish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final
from uuid import UUID

from milena.protocol.types import Offset
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.cleaner_offsets import CleanerOffsets
from milena.tiered.segments.lineage import is_within_leader_epochs
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.shared.tier import Tier
from milena.tiered.work.former_deletions import is_needed
from milena.tiered.work.roles import ReplicaRole

DELAY: Final = "remote.log.compaction.source.retention.ms"
_COPIED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_MARKED: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


def superseded(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> list[RemoteLogSegmentMetadata]:
    """Return the segments to delete now, including those whose deletion a former leader has started.

    The delay begins when the segment was replaced, by the clock of the broker that published the replacement, or when
    this leader first saw that it was superseded, whichever is earlier: with frequent changes of leader, the second time
    alone would delay the deletion without limit. A segment is kept if it has records of this log that no other segment
    serves: this should not happen, but then its objects are the only copy.
    """
    cache, now = tier.metadata.cache(role.partition), tier.runtime.clock.monotonic()
    if not cache.cleanings or not log.epochs.entries:
        return []
    listed = cache.segments()
    finished = [one for one in listed if one.state is _COPIED]
    found = [one for one in finished if not cache.serves(one)]
    found += _never_read(cache, log, [one for one in finished if cache.serves(one)])
    marked = [one for one in listed if one.state is _MARKED and one.id not in role.copying]
    role.superseded_since = {one.id: role.superseded_since.get(one.id, now) for one in found}
    delay = tier.config().get_int(DELAY) / 1000
    replaced_at, now_ms = _replaced_at(cache, listed), tier.runtime.clock.time_ms()
    due = [
        one
        for one in found
        if now - role.superseded_since[one.id] >= delay or now_ms - replaced_at.get(one.id, now_ms) >= 1000 * delay
    ]
    epochs = log.epochs.entries
    start, end = max(log.log_start_offset, epochs[0].start), log.local_log_start_offset
    may_vanish = {*tier.unreliable.of(role.partition), *(one.id for one in cache.at_risk())} if due else set()
    return marked + [
        one
        for one in due
        if not is_needed(
            cache,
            one,
            epochs,
            max(start, one.start_offset),
            min(end, Offset(one.end_offset + 1)),
            {one.id, *may_vanish} if cache.serves(one) else frozenset(),
        )
    ]


def _replaced_at(cache: RemoteLogMetadataCache, listed: Sequence[RemoteLogSegmentMetadata]) -> Mapping[UUID, int]:
    """Return when segments were replaced (ms), for those whose replacement is still listed."""
    published: dict[CleanerOffsets, int] = {}
    for one in listed:
        if one.cleaned and one.was_copied:
            published[one.cleaned] = min(one.event_timestamp_ms, published.get(one.cleaned, one.event_timestamp_ms))
    found = {
        replaced: [published[one] for one in maps if one in published]
        for replaced, maps in cache.cleanings.replaced.items()
    }
    return {replaced: min(times) for replaced, times in found.items() if times}


def _never_read(
    cache: RemoteLogMetadataCache, log: UnifiedLog, counting: Sequence[RemoteLogSegmentMetadata]
) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the segments, completely on this log's lineage, that are never read because cleaned segments have all of
    their offsets. ``counting``: the valid segments, by start offset."""
    for one in _overlapping(counting):
        if is_within_leader_epochs(one, log_end=log.log_end_offset, leader_epochs=log.epochs.entries):
            readers = _served_instead(cache, log, one)
            if readers and all(other.cleaned and other.id != one.id for other in readers):
                yield one


def _served_instead(
    cache: RemoteLogMetadataCache, log: UnifiedLog, one: RemoteLogSegmentMetadata
) -> list[RemoteLogSegmentMetadata]:
    """Return the segments that are read for the offsets of a segment."""
    every = cache.served(one.start_offset, leader_epochs=log.epochs.entries, log_end=log.log_end_offset)
    return [served.segment for served in takewhile(lambda served: served.first <= one.end_offset, every)]


def _overlapping(segments: Sequence[RemoteLogSegmentMetadata]) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the segments that share an offset with another one. ``segments``: by start offset."""
    furthest: RemoteLogSegmentMetadata | None = None
    yielded: set[UUID] = set()
    for one in segments:
        if furthest is not None and one.start_offset <= furthest.end_offset:
            for other in (furthest, one):
                if other.id not in yielded:
                    yielded.add(other.id)
                    yield other
        if furthest is None or one.end_offset > furthest.end_offset:
            furthest = one
