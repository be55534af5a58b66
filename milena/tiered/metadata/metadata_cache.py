"""One broker's view of one partition's segments in the tier (docs/kafka-semantics.md: Segment states, The metadata
topic).

Kafka keeps one segment per leader epoch and start offset, so after unclean elections a segment of another lineage can
hide one of this log. Here all segments are kept, and a look-up selects by the leader's own epochs. The result does not
depend on the order in which different segments were added, except for fences: a record that follows a record of a
higher leader epoch is fenced and not applied (docs/decisions/2026-11-22-claims-and-marks.md).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.segments.cleaner_offsets import CleanedTo, CleanerOffset, CleanerOffsets, Reach, reach
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.epoch_segments import EpochSegments
from milena.tiered.segments.lineage import epoch_at, is_within_leader_epochs, serving_range
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    allowed,
)

_COPIED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_MARKED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


class ServedSegment(NamedTuple):
    """A segment, and one range of offsets (inclusive) that it serves under one leader's epochs."""

    segment: RemoteLogSegmentMetadata
    first: Offset
    last: Offset


class RemoteLogMetadataCache:
    """The listed segments of one partition. Pure: no clock, no I/O.

    The ``leader_epochs`` (oldest first) and ``log_end`` (exclusive) passed to look-ups are those of the replica that
    serves the read.
    """

    __slots__ = (
        "_by_epoch",
        "_entries",
        "_maps",
        "_segments",
        "changes",
        "cleaned_to",
        "cleanings",
        "copied_again",
        "fence_epoch",
    )

    def __init__(self) -> None:
        self.changes = 0
        """The number of changes: the result of a look-up may be out of date after the next change."""
        self.fence_epoch: LeaderEpoch = UNFENCED
        """The highest leader epoch of any event: later events of lower epochs are fenced."""
        self.cleaned_to: CleanedTo | None = None
        """The first dirty offset after the last finished pass of cleaning, and the epoch of its leader."""
        self.cleanings = Cleanings()
        self.copied_again = 0
        """The number of finished copies of local segments whose offsets had been in the tier before, and may have been
        cleaned there."""
        self._segments: dict[UUID, RemoteLogSegmentMetadata] = {}
        self._by_epoch: dict[LeaderEpoch, EpochSegments] = {}
        self._maps: dict[CleanerOffsets, tuple[CleanerOffsets, int]] = {}
        """Each cleaner-offset map, which may have thousands of entries, and how many listed segments share it."""
        self._entries: dict[CleanerOffset, CleanerOffset] = {}
        """The entries of former leaders, shared by the maps of all later leaders."""

    @classmethod
    def restored(
        cls,
        segments: Iterable[RemoteLogSegmentMetadata],
        highest: Mapping[LeaderEpoch, Offset],
        fence_epoch: LeaderEpoch = UNFENCED,
        cleanings: Cleanings | None = None,
        cleaned_to: CleanedTo | None = None,
        *,
        replaced_are_known: bool = False,
    ) -> RemoteLogMetadataCache:
        """Return a cache with the contents of another one. ``highest``: its ``highest_offsets``.
        ``replaced_are_known``: whether ``cleanings`` has all listed segments that were replaced."""
        cache = cls()
        cache.fence_epoch = fence_epoch
        cache.cleaned_to = cleaned_to
        cache.cleanings = cleanings or cache.cleanings
        for segment in segments:
            cache._put(segment)
            if segment.was_copied:
                cache.cleanings.finished(segment, replaces=not replaced_are_known)
        for epoch, offset in highest.items():
            cache._epoch(epoch).highest = offset
        return cache

    def is_fenced(self, event: RemoteLogSegmentMetadata | RemoteLogSegmentUpdate) -> bool:
        """Whether the next event is fenced: it follows one of a higher leader epoch. Events without a leader epoch are
        never fenced."""
        return UNFENCED < event.leader_epoch < self.fence_epoch

    def apply(self, event: RemoteLogSegmentMetadata | RemoteLogSegmentUpdate) -> bool:
        """Apply a new segment, a later state of a segment, or a leader epoch fence. Returns False if the event is
        fenced, or if the state transition is invalid: then no segment has changed."""
        if self.is_fenced(event):
            return False
        self.fence_epoch = max(self.fence_epoch, event.leader_epoch)
        known = self._segments.get(event.segment_id.id)
        if isinstance(event, RemoteLogSegmentMetadata):
            if not allowed(None if known is None else known.state, event.state):
                return False
            self.changes += 1
            if known is not None:
                self._remove(known)
            if event.was_copied and (known is None or not known.was_copied):
                self._finished(event)
            self._put(event)
            return True
        if event.is_fence:
            if event.first_dirty is not None:
                self.cleaned_to = CleanedTo(event.leader_epoch, event.first_dirty)
            return True
        if known is None or known.segment_id != event.segment_id or not _may_follow(known, event):
            return False
        self.changes += 1
        self._replace(known, known.updated(event))
        return True

    def _replace(self, known: RemoteLogSegmentMetadata, after: RemoteLogSegmentMetadata) -> None:
        """Replace a segment by its next state."""
        if after.state is _DELETED:
            self._remove(known)
            self.cleanings.removed(known)
            return
        if after.was_copied and not known.was_copied:
            self._finished(after)
        self._segments[after.id] = after
        for epoch, _ in after.epochs:
            self._by_epoch[epoch].replace(known, after)

    def _finished(self, segment: RemoteLogSegmentMetadata) -> None:
        """Record that a copy is finished, before it is indexed. If local records were copied at offsets that had been
        cleaned in the tier, these offsets become dirty again."""
        self.cleanings.finished(segment)
        highest = self.highest_offset_for_epoch(segment.epochs[0].epoch)
        if segment.cleaned or highest is None or highest < segment.start_offset:
            return
        self.copied_again += 1
        done = self.cleaned_to
        if done is not None and segment.start_offset < done.offset:
            self.cleaned_to = done._replace(offset=segment.start_offset)

    def __len__(self) -> int:
        return len(self._segments)

    def get(self, segment: UUID) -> RemoteLogSegmentMetadata | None:
        """Return the listed segment with this id; None if there is none."""
        return self._segments.get(segment)

    def end(self) -> Offset:
        """Return the offset after all listed segments; 0 if there are none."""
        return Offset(max((segment.end_offset for segment in self._segments.values()), default=-1) + 1)

    def segments(self) -> list[RemoteLogSegmentMetadata]:
        """Return all listed segments, by start offset."""
        return sorted(self._segments.values(), key=_place)

    def serves(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether a listed segment is readable, and valid after all cleanings."""
        return segment.state is _COPIED and self.cleanings.count(segment)

    def counts(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether the segment is valid after all cleanings: not replaced, and its own cleaning is not rejected."""
        return not self.cleanings or self.cleanings.count(segment)

    def at_risk(self) -> list[RemoteLogSegmentMetadata]:
        """The readable segments that a former leader may still delete, in no particular order."""
        return [one for one in self._segments.values() if one.at_risk and one.state is _COPIED]

    def segments_of_epoch(self, epoch: LeaderEpoch) -> list[RemoteLogSegmentMetadata]:
        """Return the listed segments with records of ``epoch``, by start offset."""
        return sorted(self._by_epoch.get(epoch, ()), key=_place)

    def epochs(self) -> list[LeaderEpoch]:
        """The leader epochs of all listed segments."""
        return sorted(epoch for epoch, found in self._by_epoch.items() if any(True for _ in found))

    def highest_offset_for_epoch(self, epoch: LeaderEpoch) -> Offset | None:
        """Return the last offset of ``epoch`` that was ever copied, even if it was deleted from the tier since; None if
        none was copied."""
        found = self._by_epoch.get(epoch)
        return None if found is None else found.highest

    def highest_offsets(self) -> dict[LeaderEpoch, Offset]:
        """The highest copied offset of each epoch."""
        return {epoch: found.highest for epoch, found in self._by_epoch.items() if found.highest is not None}

    def find(self, epoch: LeaderEpoch, offset: Offset) -> list[RemoteLogSegmentMetadata]:
        """Return all readable and valid segments that contain ``offset`` in ``epoch``, on any lineage."""
        found = self._by_epoch.get(epoch)
        if found is None:
            return []
        if not self.cleanings:
            return found.at(offset)
        return [segment for segment in found.at(offset) if self.cleanings.count(segment)]

    def segment_for(
        self,
        offset: Offset,
        *,
        leader_epochs: Sequence[EpochEntry],
        log_end: Offset,
        without: Container[UUID] = (),
    ) -> ServedSegment | None:
        """Return the segment that serves ``offset``. If there are several: the furthest cleaned one; of those, one that
        is completely on the leader's lineage (docs/kafka-semantics.md: Segments within the leader epochs), or else the
        one that serves most offsets after ``offset``. Segments whose ids are in ``without`` are ignored.
        None if the tier does not contain the leader's record."""
        index = epoch_at(offset, leader_epochs)
        if index is None or offset >= log_end:
            return None
        best: tuple[Reach, bool, Offset, int] | None = None
        served = None
        candidates = [one for one in self.find(leader_epochs[index].epoch, offset) if one.id not in without]
        for segment in candidates:
            run = serving_range(segment, offset, log_end=log_end, leader_epochs=leader_epochs)
            if run is None:
                continue
            if len(candidates) == 1:
                return ServedSegment(segment, *run)
            whole = is_within_leader_epochs(segment, log_end=log_end, leader_epochs=leader_epochs)
            rank = (reach(segment.cleaned), whole, run[1], segment.id.int)
            if best is None or rank > best:
                best, served = rank, ServedSegment(segment, *run)
        return served

    def served(
        self,
        offset: Offset,
        *,
        leader_epochs: Sequence[EpochEntry],
        log_end: Offset,
        without: Container[UUID] = (),
    ) -> Iterator[ServedSegment]:
        """Yield the segments that serve the offsets from ``offset`` on, in order, each offset once. Offsets that are
        not in the tier are skipped, and segments whose ids are in ``without``."""
        at: Offset | None = offset
        while at is not None:
            found = self.segment_for(at, leader_epochs=leader_epochs, log_end=log_end, without=without)
            if found is not None:
                yield found._replace(first=at)
                at = Offset(found.last + 1)
            else:
                at = self._next_served(at, leader_epochs, log_end)

    def all_served(
        self, offset: Offset, *, leader_epochs: Sequence[EpochEntry], log_end: Offset
    ) -> list[ServedSegment]:
        """Return the same as ``served`` as a list, several times as fast where no segments overlap."""
        found: list[ServedSegment] = []
        at: Offset | None = offset
        while at is not None:
            index = epoch_at(at, leader_epochs)
            of_epoch = None if index is None else self._by_epoch.get(leader_epochs[index].epoch)
            if index is not None and of_epoch is not None:
                end = log_end if index + 1 == len(leader_epochs) else min(leader_epochs[index + 1].start, log_end)
                for segment in of_epoch.row(at, end):
                    if not self.counts(segment):
                        break
                    found.append(ServedSegment(segment, at, segment.end_offset))
                    at = Offset(segment.end_offset + 1)
            one = self.segment_for(at, leader_epochs=leader_epochs, log_end=log_end)
            if one is not None:
                found.append(one._replace(first=at))
                at = Offset(one.last + 1)
            else:
                at = self._next_served(at, leader_epochs, log_end)
        return found

    def next_with_txn_index(
        self, offset: Offset, *, leader_epochs: Sequence[EpochEntry], log_end: Offset
    ) -> ServedSegment | None:
        """The first segment that serves ``offset`` or a later one and has aborted transactions
        (docs/kafka-semantics.md: Aborted transactions)."""
        every = self.served(offset, leader_epochs=leader_epochs, log_end=log_end)
        return next((served for served in every if not served.segment.txn_index_empty), None)

    def with_timestamp(
        self, timestamp: int, offset: Offset, *, leader_epochs: Sequence[EpochEntry], log_end: Offset
    ) -> Iterator[ServedSegment]:
        """The segments that serve ``offset`` or a later one and have a record with ``timestamp`` (ms) or later
        (docs/kafka-semantics.md: Special timestamps)."""
        every = self.served(offset, leader_epochs=leader_epochs, log_end=log_end)
        return (served for served in every if served.segment.max_timestamp_ms >= timestamp)

    def _next_served(self, offset: Offset, leader_epochs: Sequence[EpochEntry], log_end: Offset) -> Offset | None:
        """Return the lowest offset above ``offset`` that some segment contains in the epoch that the leader's log has
        at that offset; None if there is none."""
        for index in range(epoch_at(offset, leader_epochs) or 0, len(leader_epochs)):
            epoch, start = leader_epochs[index]
            end = leader_epochs[index + 1].start if index + 1 < len(leader_epochs) else log_end
            if start > offset and self.find(epoch, start):
                return start
            found = self._by_epoch.get(epoch)
            following = None if found is None else found.next_start(max(offset, start))
            if following is not None and following < end:
                return following
        return None

    def _put(self, segment: RemoteLogSegmentMetadata) -> None:
        if segment.cleaned:
            shared, count = self._maps.get(segment.cleaned, (None, 0))
            if shared is None:
                of_others = [self._entries.setdefault(entry, entry) for entry in segment.cleaned[:-1]]
                shared = (*of_others, segment.cleaned[-1])
            self._maps[shared] = shared, count + 1
            segment = replace(segment, cleaned=shared)
        self._segments[segment.id] = segment
        for epoch, _ in segment.epochs:
            self._epoch(epoch).add(segment)

    def _remove(self, segment: RemoteLogSegmentMetadata) -> None:
        del self._segments[segment.id]
        if segment.cleaned:
            shared, count = self._maps.pop(segment.cleaned)
            if count > 1:
                self._maps[shared] = shared, count - 1
        for epoch, _ in segment.epochs:
            self._by_epoch[epoch].remove(segment)

    def _epoch(self, epoch: LeaderEpoch) -> EpochSegments:
        found = self._by_epoch.get(epoch)
        if found is None:
            found = self._by_epoch[epoch] = EpochSegments(epoch)
        return found


def _may_follow(known: RemoteLogSegmentMetadata, event: RemoteLogSegmentUpdate) -> bool:
    if event.republishes:
        return known.state is _MARKED and known.was_copied and event.state is _COPIED
    return allowed(known.state, event.state)


def _place(segment: RemoteLogSegmentMetadata) -> tuple[Offset, Offset, int]:
    return segment.start_offset, segment.end_offset, segment.id.int
