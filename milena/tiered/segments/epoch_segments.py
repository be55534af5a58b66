"""An index by offset of the remote segments with records of one leader epoch.

Segments of an epoch rarely overlap, but they may: after a copy that was not finished, or with one copy from each side
of an unclean election. So they are sorted by their first offset of the epoch, and each has the highest end offset of
itself and all before it: a search moves back only while an earlier segment can still contain the offset. Segments with
the same first offset are sorted by their end offsets; a log that is cleaned many times has many of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState

_READABLE = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class EpochSegments:
    """The segments of ``epoch``, in any state. Their order does not depend on the order in which they were added."""

    __slots__ = ("_reach", "_segments", "_starts", "epoch", "highest")

    highest: Offset | None
    """The highest offset of the epoch that was ever copied. Deletions do not lower it."""

    def __init__(self, epoch: LeaderEpoch) -> None:
        self.epoch = epoch
        self.highest = None
        self._segments: list[RemoteLogSegmentMetadata] = []
        self._starts: list[Offset] = []
        self._reach: list[Offset] = []

    def __iter__(self) -> Iterator[RemoteLogSegmentMetadata]:
        return iter(self._segments)

    def at(self, offset: Offset) -> list[RemoteLogSegmentMetadata]:
        """The readable segments that contain ``offset`` in this epoch, by start offset."""
        segments, reach, epoch = self._segments, self._reach, self.epoch
        index = bisect_right(self._starts, offset) - 1
        found = []
        while index >= 0 and reach[index] >= offset:
            segment = segments[index]
            if segment.state is _READABLE and segment.epoch_end(epoch) >= offset:
                found.append(segment)
            index -= 1
        found.reverse()
        return found

    def row(self, offset: Offset, end: Offset) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the readable segments that contain only this epoch and follow each other from ``offset`` to ``end``
        without a gap, up to the first one that overlaps another. The index must not change during the iteration."""
        starts, segments = self._starts, self._segments
        first = bisect_left(starts, offset)
        if first and self._reach[first - 1] >= offset:
            return
        for index in range(first, len(starts)):
            segment = segments[index]
            last = segment.end_offset
            if starts[index] != offset or last >= end or len(segment.epochs) > 1 or segment.state is not _READABLE:
                return
            if index + 1 < len(starts) and starts[index + 1] <= last:
                return
            yield segment
            offset = Offset(last + 1)

    def next_start(self, offset: Offset) -> Offset | None:
        """The lowest offset above ``offset`` at which a readable segment's records of this epoch begin."""
        for index in range(bisect_right(self._starts, offset), len(self._starts)):
            segment = self._segments[index]
            if segment.state is _READABLE and segment.epoch_end(self.epoch) >= self._starts[index]:
                return self._starts[index]
        return None

    def add(self, segment: RemoteLogSegmentMetadata) -> None:
        start, index = segment.epoch_start(self.epoch), self._index(segment)
        self._starts.insert(index, start)
        self._segments.insert(index, segment)
        self._reach.insert(index, start)
        self._renew_reach(index, inserted=True)
        self._note(segment)

    def replace(self, before: RemoteLogSegmentMetadata, after: RemoteLogSegmentMetadata) -> None:
        """Replace a segment by another state of it with the same offsets."""
        self._segments[self._index(before)] = after
        self._note(after)

    def remove(self, segment: RemoteLogSegmentMetadata) -> None:
        index = self._index(segment)
        del self._segments[index], self._starts[index], self._reach[index]
        self._renew_reach(index)

    def _note(self, segment: RemoteLogSegmentMetadata) -> None:
        if segment.state is _READABLE:
            end = segment.epoch_end(self.epoch)
            if end >= segment.epoch_start(self.epoch) and (self.highest is None or end > self.highest):
                self.highest = end

    def _index(self, segment: RemoteLogSegmentMetadata) -> int:
        """Return the index where the segment is, or where it has to be inserted."""
        start = segment.epoch_start(self.epoch)
        behind = bisect_right(self._starts, start)
        return bisect_left(self._segments, _rank(segment), bisect_left(self._starts, start), behind, key=_rank)

    def _renew_reach(self, index: int, *, inserted: bool = False) -> None:
        """Update the highest end offsets from ``index`` on until they do not change; always sets an inserted one."""
        reach = self._reach
        furthest = reach[index - 1] if index else Offset(-1)
        while index < len(reach):
            furthest = max(furthest, self._segments[index].epoch_end(self.epoch))
            if reach[index] == furthest and not inserted:
                return
            reach[index] = furthest
            inserted = False
            index += 1


def _rank(segment: RemoteLogSegmentMetadata) -> tuple[Offset, int]:
    """The order of segments with the same first offset."""
    return segment.end_offset, segment.id.int
