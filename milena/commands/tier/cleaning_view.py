"""Describes for `milena tier` how cleanings affected the segments of a partition: which segments were replaced or
rejected, and by which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict
from uuid import UUID

from milena.protocol.uuids import to_text
from milena.tiered.segments.cleaner_offsets import CleanerOffsets, map_text
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata


class Cleaning(TypedDict):
    """How cleanings affected one segment, for ``--json``."""

    cleaner_offsets: list[list[int | None]]
    """The segment's cleaner-offset map as pairs of leader epoch and offset; empty if the segment was not cleaned."""
    replaces: list[str]
    counts: bool
    """Whether readers use the segment: no cleaning has replaced or rejected it."""
    replaced_by: list[str]
    """The ids of the segments that replace it. Empty if it was not replaced, or if those segments were deleted."""
    rejected_by: list[str]
    """The ids of the segments whose cleaner-offset map contradicts its own."""
    contradicted: list[list[int | None]] | None
    """The cleaner-offset map that contradicts its own; None if there is none."""


class CleaningsShown:
    """Describes the cleanings of one partition. ``every``: all its segments in the metadata."""

    def __init__(self, cleanings: Cleanings, every: Iterable[RemoteLogSegmentMetadata]) -> None:
        self._cleanings = cleanings
        self._with: dict[CleanerOffsets, list[RemoteLogSegmentMetadata]] = {}
        self._replacing: dict[UUID, list[RemoteLogSegmentMetadata]] = {}
        for segment in every if cleanings else ():
            if segment.was_copied:
                self._with.setdefault(segment.cleaned, []).append(segment)
                for source in segment.replaces:
                    self._replacing.setdefault(source, []).append(segment)

    def of(self, segment: RemoteLogSegmentMetadata) -> Cleaning:
        """Return the entry of a segment."""
        exclusion = self._cleanings.exclusion(segment)
        by = [one for one in self._replacing.get(segment.id, ()) if self._is_accepted(one)]
        rejecting = [] if exclusion.rejected_by is None else self._with.get(exclusion.rejected_by, [])
        return {
            "cleaner_offsets": _plain(segment.cleaned),
            "replaces": [to_text(source) for source in segment.replaces],
            "counts": exclusion.counts,
            "replaced_by": sorted(to_text(one.id) for one in by),
            "rejected_by": sorted(to_text(one.id) for one in rejecting),
            "contradicted": None if exclusion.rejected_by is None else _plain(exclusion.rejected_by),
        }

    def _is_accepted(self, segment: RemoteLogSegmentMetadata) -> bool:
        return self._cleanings.exclusion(segment).rejected_by is None


def _plain(offsets: CleanerOffsets) -> list[list[int | None]]:
    return [[epoch, offset] for epoch, offset in offsets]


def remark(plain: Cleaning) -> str:
    """Return a remark about the segment for people; empty if no cleaning affected it."""
    parts = []
    if plain["cleaner_offsets"]:
        parts.append(f"cleaned {map_text(plain['cleaner_offsets'])}")
    if plain["contradicted"] is not None:
        by = _several(plain["rejected_by"]) or "a deleted segment"
        parts.append(f"rejected by {map_text(plain['contradicted'])} of {by}")
    elif not plain["counts"]:
        parts.append(f"replaced by {_several(plain['replaced_by']) or 'a deleted segment'}")
    return ", ".join(parts)


def _several(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 1} more" if ids[1:] else ""
    return f"{ids[0]}{more}" if ids else ""
