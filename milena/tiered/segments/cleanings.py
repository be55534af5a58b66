"""Which of a partition's segments are valid after cleanings. This depends on the set of segments, and not on the order
in which they became known.

A segment *counts* unless its cleaner-offset map is rejected (``cleaner_offsets.judged``), or a finished segment with an
accepted map replaces it. Of the segments that count, the furthest cleaned is served. Deleted segments still have an
effect: their maps can reject others, and the segments that they replaced stay replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from milena.tiered.segments.cleaner_offsets import (
    CleanerOffsets,
    Judged,
    author,
    contradicts,
    holds,
    judged,
    kept_of_deleted,
    reach,
)
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata


class Exclusion(NamedTuple):
    """Why a segment does not count: the furthest map that contradicts the segment's own, and the furthest map of the
    segments that replace it. Both are None if it counts."""

    rejected_by: CleanerOffsets | None
    replaced_by: CleanerOffsets | None

    @property
    def counts(self) -> bool:
        return self == (None, None)


class Cleanings:
    """The cleanings of one partition. Falsy as long as there were none. Pure: no clock, no I/O."""

    __slots__ = ("_counts", "_deleted", "_holds", "_judged", "_replaced")

    def __init__(
        self,
        deleted: Iterable[CleanerOffsets] = (),
        replaced: Iterable[tuple[UUID, Iterable[CleanerOffsets]]] = (),
    ) -> None:
        self._counts: dict[CleanerOffsets, int] = {}
        """The maps of listed segments whose copy was finished, and how many segments have each."""
        self._deleted: list[CleanerOffsets] = list(deleted)
        self._replaced: dict[UUID, set[CleanerOffsets]] = {one: set(maps) for one, maps in replaced}
        """By id of a replaced segment: the maps of the segments that replaced it."""
        self._judged: Judged | None = None
        self._holds: dict[int, tuple[CleanerOffsets, bool]] = {}
        """Whether a map is accepted, by the identity of the map: hashing one takes time in proportion to its length."""

    def __bool__(self) -> bool:
        return bool(self._counts or self._deleted or self._replaced)

    @property
    def deleted(self) -> Collection[CleanerOffsets]:
        """The maps of deleted segments that still have an effect."""
        return self._deleted

    @property
    def replaced(self) -> Mapping[UUID, Collection[CleanerOffsets]]:
        """The listed segments that were replaced, and the maps of the segments that replaced them."""
        return self._replaced

    @property
    def maps(self) -> frozenset[CleanerOffsets]:
        """The accepted maps."""
        return self._judge().accepted

    def _judge(self) -> Judged:
        if self._judged is None:
            self._judged = judged([*self._counts, *self._deleted])
            self._holds.clear()
        return self._judged

    @classmethod
    def of(cls, segments: Iterable[RemoteLogSegmentMetadata]) -> Cleanings:
        """Return the cleanings of the finished segments among ``segments``."""
        cleanings = cls()
        for segment in segments:
            if segment.was_copied:
                cleanings.finished(segment)
        return cleanings

    @classmethod
    def left_by(cls, deleted: Iterable[RemoteLogSegmentMetadata]) -> Cleanings:
        """Return the remaining effect of finished segments that were ``deleted``."""
        segments = list(deleted)
        cleanings = cls.of(segments)
        for segment in segments:
            cleanings.removed(segment)
        return cleanings

    def finished(self, segment: RemoteLogSegmentMetadata, *, replaces: bool = True) -> None:
        """Add a segment whose copy was finished, once for each segment. ``replaces``: False if the segments that it
        replaces are known already."""
        if not segment.cleaned:
            return
        self._counts[segment.cleaned] = self._counts.get(segment.cleaned, 0) + 1
        for source in segment.replaces if replaces else ():
            self._replaced.setdefault(source, set()).add(segment.cleaned)
        self._judged = None

    def removed(self, segment: RemoteLogSegmentMetadata) -> None:
        """Remove a segment that is no longer listed."""
        self._replaced.pop(segment.id, None)
        if not segment.cleaned or not segment.was_copied:
            return
        left = self._counts[segment.cleaned] - 1
        if left:
            self._counts[segment.cleaned] = left
            return
        del self._counts[segment.cleaned]
        self._deleted = kept_of_deleted([*self._deleted, segment.cleaned])
        self._judged = None

    def exclusion(self, segment: RemoteLogSegmentMetadata) -> Exclusion:
        """Return why the segment does not count, or an ``Exclusion`` that says that it counts."""
        contradicting = None
        if segment.cleaned and not self._hold(segment.cleaned):
            later = [one for one in self.maps if author(one) > author(segment.cleaned)]
            contradicting = max((one for one in later if contradicts(one, segment.cleaned)), key=reach)
        by = [one for one in self._replaced.get(segment.id, ()) if self._hold(one)]
        return Exclusion(contradicting, max(by, key=reach, default=None))

    def count(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether the segment counts."""
        if segment.cleaned and not self._hold(segment.cleaned):
            return False
        return not any(self._hold(offsets) for offsets in self._replaced.get(segment.id, ()))

    def _hold(self, offsets: CleanerOffsets) -> bool:
        bounds = self._judge().bounds
        found = self._holds.get(id(offsets))
        if found is None:
            found = self._holds[id(offsets)] = offsets, holds(offsets, bounds)
        return found[1]
