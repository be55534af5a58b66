"""The segments of one log, by base offset, like Kafka's ``LogSegments``."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import Offset
from milena.storage.log.segment import Segment


def _base(segment: Segment) -> Offset:
    return segment.base_offset


class Segments:
    """Never empty once the log is open. The last segment is the active one."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return sum(segment.size for segment in self._segments)

    def floor_index(self, offset: int) -> int:
        """Return the index of the last segment that begins at ``offset`` or before, -1 for none."""
        if offset >= self._segments[-1].base_offset:
            return len(self._segments) - 1
        return bisect_right(self._segments, offset, key=_base) - 1

    def end_of(self, index: int, log_end: Offset) -> Offset:
        """Return the base offset of the segment after the one at ``index``; ``log_end`` for the active segment."""
        return self._segments[index + 1].base_offset if index + 1 < len(self._segments) else log_end

    def since(self, offset: int) -> list[Segment]:
        """Return the segment that contains ``offset``, and all later ones."""
        if not self._segments:
            return []
        first = self.floor_index(offset)
        return self._segments[max(first, 0) :]

    def add(self, segment: Segment) -> None:
        index = bisect_left(self._segments, segment.base_offset, key=_base)
        if index < len(self._segments) and self._segments[index].base_offset == segment.base_offset:
            raise BrokenInvariant(f"two segments of {segment.folder} begin at {segment.base_offset}")
        self._segments.insert(index, segment)

    def replace(self, index: int, count: int, segment: Segment) -> None:
        """Replace ``count`` segments from ``index`` on by ``segment``, which has the same base offset. None of them is
        active."""
        if index + count >= len(self._segments) or self._segments[index].base_offset != segment.base_offset:
            raise BrokenInvariant(f"segment {segment.base_offset} cannot replace {count} from the {index}. on")
        self._segments[index : index + count] = [segment]

    def take_from(self, index: int) -> list[Segment]:
        """Remove and return the segments from ``index`` on."""
        taken = self._segments[index:]
        del self._segments[index:]
        return taken

    def take_first(self, count: int) -> list[Segment]:
        """Remove and return the ``count`` oldest segments. The active segment must remain."""
        if count >= len(self._segments):
            raise BrokenInvariant(f"{count} of {len(self._segments)} segments would be removed, with the active one")
        taken = self._segments[:count]
        del self._segments[:count]
        return taken

    def take_beyond(self, offset: int) -> list[Segment]:
        """Remove and return the segments whose base offset is greater than ``offset``."""
        return self.take_from(bisect_left(self._segments, offset + 1, key=_base))
