"""Which segments of the tier a pass of cleaning reads, and where their dirty part begins. Plain functions.

The **window** begins at the start of the tier. It ends at the end of the tier, at an offset that is not in the tier, or
at a record that is too young. In the window, a record may be removed because of any later one with the same key: each
is in a finished, valid segment on the lineage of this leader. Only this leader may delete such a segment now, and it
deletes the oldest first.
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
    """Whether all offsets of the segment are on the lineage. Only such a segment is replaced by the cleaned one."""

    @property
    def is_cut(self) -> bool:
        """Whether the segment also has records outside of ``first`` to ``last``: records that another segment serves,
        or that are not on the lineage."""
        return self.first > self.segment.start_offset or self.last < self.segment.end_offset


class Window(NamedTuple):
    """The segments of a pass. ``sources`` follow each other without a gap."""

    sources: Sequence[Source]
    first_dirty: Offset
    copied_again: int = 0
    """The value of the cache's ``copied_again`` at the time at which the window was determined."""

    @property
    def end(self) -> Offset:
        """The offset after the last one of the window."""
        return Offset(self.sources[-1].last + 1) if self.sources else self.first_dirty

    def until(self, end: Offset) -> Window:
        """Return the window without the source that contains ``end``, and later ones."""
        return self._replace(sources=[source for source in self.sources if source.last < end])


def sources(
    cache: RemoteLogMetadataCache,
    *,
    log_start: Offset,
    log_end: Offset,
    leader_epochs: Sequence[EpochEntry],
    without: Container[UUID] = (),
) -> Iterator[Source]:
    """Yield the segments that a pass may read, oldest first. ``without``: ids of segments that may be deleted."""
    if not leader_epochs:
        return
    start = at = max(log_start, leader_epochs[0].start)
    for served in cache.served(start, leader_epochs=leader_epochs, log_end=log_end, without=without):
        if served.first != at:
            return
        segment = served.segment
        # The first batch may contain records before the log start: it is read completely.
        first = segment.start_offset if at == start else served.first
        whole = is_within_leader_epochs(segment, log_end=log_end, leader_epochs=leader_epochs)
        yield Source(segment, first, served.last, whole and served.last == segment.end_offset)
        at = Offset(served.last + 1)


def first_dirty(
    cache: RemoteLogMetadataCache, *, log_start: Offset, log_end: Offset, leader_epochs: Sequence[EpochEntry]
) -> Offset:
    """Return the first dirty offset, at which the next pass begins. It is the end of the last finished pass or, if that
    is lower, the offset where this log diverges from the log of the leader that finished that pass."""
    done = cache.cleaned_to
    if done is None or not leader_epochs:
        return log_start
    bound = min(done.offset, log_end)
    known = {entry.epoch for entry in leader_epochs}
    later = next((entry for entry in leader_epochs if entry.epoch > done.epoch), None)
    if later is not None:
        bound = min(bound, later.start)
    if done.epoch in known:
        return max(bound, log_start)  # up to this offset, this log and that leader's log are the same
    for epoch in cache.epochs():
        if leader_epochs[0].epoch <= epoch <= done.epoch and epoch not in known:
            bound = min(bound, *(segment.epoch_start(epoch) for segment in cache.segments_of_epoch(epoch)))
    return max(bound, log_start)


def old_enough(window: Window, config: TopicConfig, now: int) -> Window:
    """Return the window up to the first dirty segment with records younger than ``min.compaction.lag.ms``. ``now``:
    ms."""
    lag = config.min_compaction_lag_ms
    if lag > 0:
        for source in window.sources:
            if source.last >= window.first_dirty and source.segment.max_timestamp_ms > now - lag:
                return window.until(source.first)
    return window


def dirtiness(window: Window, config: TopicConfig, now: int) -> Dirtiness:
    """Return the clean and dirty bytes of the window, and how long it is overdue (``max.compaction.lag.ms``). ``now``:
    ms.

    The metadata has a segment's largest timestamp, but not its first: the age of a dirty segment is estimated by the
    largest timestamp of the segment before it.
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


def map_at_start(
    cache: RemoteLogMetadataCache, epoch: LeaderEpoch, *, leader_epochs: Sequence[EpochEntry]
) -> CleanerOffsets:
    """Return the cleaner-offset map with which the leader of ``epoch`` starts.

    The first map of a partition has an entry without an offset (None) for the log's first epoch, so that maps that
    former leaders may still publish are rejected.
    """
    first = leader_epochs[0].epoch
    found = resolved(cache.cleanings.maps, epoch, first=first)
    if not cache.cleanings.maps and first < epoch:
        found = (CleanerOffset(first, None), *found)
    return found


def map_of_pass(
    cache: RemoteLogMetadataCache, epoch: LeaderEpoch, end: Offset, *, leader_epochs: Sequence[EpochEntry]
) -> CleanerOffsets:
    """Return the cleaner-offset map of a pass by the leader of ``epoch`` that uses keys up to ``end`` (exclusive)."""
    found = map_at_start(cache, epoch, leader_epochs=leader_epochs)
    return (*found[:-1], CleanerOffset(epoch, max(found[-1].offset or Offset(0), end)))
