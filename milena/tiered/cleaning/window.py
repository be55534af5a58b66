"""Which segments of the tier a pass of cleaning reads, and where their dirty part begins. Plain functions.

The **window** begins at the start of the tier and ends where the tier does, at an offset that it lacks, or at a record
that is too young. In it, a record may go in favour of any later one: each is in a finished segment that counts, on the
lineage of this leader, who alone may delete it now, and deletes the oldest first.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from milena.config.topic_config import TopicConfig
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.cleaning.choice import NEVER, Dirtiness
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.cleaner_offsets import CleanerOffset, CleanerOffsets, resolved
from milena.tiered.segments.lineage import is_within_leader_epochs
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata


class Source(NamedTuple):
    """A segment that serves the offsets ``first`` to ``last`` of the leader's log, inclusive."""

    segment: RemoteLogSegmentMetadata
    first: Offset
    last: Offset
    whole: bool
    """Whether the segment has nothing of another lineage: then a replacement takes its place."""

    @property
    def is_cut(self) -> bool:
        """Whether the segment has other records, too, which another segment serves or which are off the lineage."""
        return self.first > self.segment.start_offset or self.last < self.segment.end_offset


class Window(NamedTuple):
    """``sources`` follow each other without a gap."""

    sources: Sequence[Source]
    first_dirty: Offset
    copied_again: int = 0
    """That of the cache before it was looked at."""

    @property
    def end(self) -> Offset:
        """The offset after the last."""
        return Offset(self.sources[-1].last + 1) if self.sources else self.first_dirty

    def until(self, end: Offset) -> Window:
        """Without the source that has ``end``, and later ones."""
        return self._replace(sources=[source for source in self.sources if source.last < end])


def sources(
    cache: RemoteLogMetadataCache,
    *,
    log_start: Offset,
    log_end: Offset,
    leader_epochs: Sequence[EpochEntry],
    without: Container[UUID] = (),
) -> Iterator[Source]:
    """What a pass may read, oldest first. ``without``: ids of segments that may vanish."""
    if not leader_epochs:
        return
    start = at = max(log_start, leader_epochs[0].start)
    for served in cache.served(start, leader_epochs=leader_epochs, log_end=log_end, without=without):
        if served.first != at:
            return
        segment = served.segment
        # What is before the log start may be in one batch with later records.
        first = segment.start_offset if at == start else served.first
        whole = is_within_leader_epochs(segment, log_end=log_end, leader_epochs=leader_epochs)
        yield Source(segment, first, served.last, whole and served.last == segment.end_offset)
        at = Offset(served.last + 1)


def first_dirty(
    cache: RemoteLogMetadataCache, *, log_start: Offset, log_end: Offset, leader_epochs: Sequence[EpochEntry]
) -> Offset:
    """Where the next pass begins: after the last finished one, or where this log and that of its leader part."""
    done = cache.cleaned_to
    if done is None or not leader_epochs:
        return log_start
    bound = min(done.offset, log_end)
    known = {entry.epoch for entry in leader_epochs}
    later = next((entry for entry in leader_epochs if entry.epoch > done.epoch), None)
    if later is not None:
        bound = min(bound, later.start)
    if done.epoch in known:
        return max(bound, log_start)  # up to there the author's log is this one, whatever else is in the tier
    for epoch in cache.epochs():
        if leader_epochs[0].epoch <= epoch <= done.epoch and epoch not in known:
            bound = min(bound, *(segment.epoch_start(epoch) for segment in cache.segments_of_epoch(epoch)))
    return max(bound, log_start)


def old_enough(window: Window, config: TopicConfig, now: int) -> Window:
    """Without dirty records younger than ``min.compaction.lag.ms``, and what follows them. ``now``: ms."""
    lag = config.min_compaction_lag_ms
    if lag > 0:
        for source in window.sources:
            if source.last >= window.first_dirty and source.segment.max_timestamp_ms > now - lag:
                return window.until(source.first)
    return window


def dirtiness(window: Window, config: TopicConfig, now: int) -> Dirtiness:
    """How dirty the window is. ``now``: ms.

    Metadata tells when a segment ends, not when it begins: a dirty segment is as old as the end of the one before it.
    """
    clean = sum(source.segment.size for source in window.sources if source.first < window.first_dirty)
    dirty = sum(source.segment.size for source in window.sources if source.last >= window.first_dirty)
    return Dirtiness(clean, dirty, _overdue(window, config, now))


def _overdue(window: Window, config: TopicConfig, now: int) -> int:
    lag = config.max_compaction_lag_ms
    if lag >= NEVER:
        return 0
    before = oldest = -1
    for source in window.sources:
        newest = source.segment.max_timestamp_ms
        if source.last >= window.first_dirty:
            begins = min(newest, before) if before > 0 else newest
            oldest = begins if oldest < 0 or 0 < begins < oldest else oldest
        before = newest
    return max(now - lag - oldest, 0) if oldest > 0 else 0


def map_of_pass(
    cache: RemoteLogMetadataCache, epoch: LeaderEpoch, end: Offset, *, leader_epochs: Sequence[EpochEntry]
) -> CleanerOffsets:
    """The cleaner-offset map of a pass by the leader of ``epoch`` that uses keys up to ``end`` (exclusive).

    The first map says that leaders since the log's first epoch have cleaned nothing: what they may add is rejected.
    """
    first = leader_epochs[0].epoch
    found = resolved(cache.cleanings.maps, epoch, first=first)
    if not cache.cleanings.maps and first < epoch:
        found = (CleanerOffset(first, None), *found)
    return (*found[:-1], CleanerOffset(epoch, max(found[-1].offset or Offset(0), end)))
