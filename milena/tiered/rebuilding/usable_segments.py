"""Selects the segments of a tier that are not in the metadata, but have a complete log whose offsets are needed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from milena.protocol.types import Offset
from milena.protocol.uuids import to_text
from milena.tiered.rebuilding.epoch_chains import Lineage, readable, served_runs
from milena.tiered.rebuilding.rebuilt_metadata import NotASegment, rebuilt
from milena.tiered.segments.cleaner_offsets import reach
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.lineage import is_within_leader_epochs, servable
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.store.remote_storage import RemoteStorage, StoredSegment

_Run = tuple[Offset, Offset]


@dataclass(slots=True)
class Restorable:
    """The segments of one partition that can be used, and notes about the others."""

    segments: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    """The segments; the log of each readable one is in the tier."""
    lineage: Lineage | None = None
    notes: list[str] = field(default_factory=list)
    """Information for the user, without the partition's name."""
    unused: list[str] = field(default_factory=list)
    """The reasons why other segments are not used."""
    undescribed: list[str] = field(default_factory=list)
    """For segments of a compacted log, the reasons why it is not known which segments they replace or are replaced
    by."""
    bounds: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    """Deleted cleaned segments, whose cleaner-offset maps still have an effect."""

    def read(self) -> list[RemoteLogSegmentMetadata]:
        """Return the readable segments that are valid after all cleanings."""
        cleanings = Cleanings.of([*self.segments, *self.bounds])
        return [segment for segment in readable(self.segments) if cleanings.count(segment)]

    def leave_out(self, segment: UUID, why: str) -> None:
        note = f"segment {to_text(segment)} is left out: {why}"
        self.unused.append(note)
        self.notes.append(note)


async def whole_segments(
    storage: RemoteStorage, stored: Iterable[StoredSegment], found: Restorable
) -> list[RemoteLogSegmentMetadata]:
    """Return the rebuilt metadata of the segments that have a complete log; the other segments are recorded in
    ``found``."""
    whole = []
    for candidate in stored:
        try:
            segment, contents, undescribed = await rebuilt(storage, candidate)
        except NotASegment as error:
            found.leave_out(candidate.segment_id.id, str(error))
            continue
        damage = [*(f"{where} has a wrong checksum" for where in contents.bad_checksums), *contents.damage]
        if damage:
            found.leave_out(segment.id, "; ".join(damage))
        elif undescribed:
            found.undescribed.append(f"segment {to_text(segment.id)} was compacted: {undescribed}")
            found.leave_out(segment.id, f"it was compacted: {undescribed}")
        else:
            whole.append(segment)
    return whole


def as_finished(
    begun: RemoteLogSegmentMetadata | None, stored: RemoteLogSegmentMetadata, found: Restorable
) -> RemoteLogSegmentMetadata | None:
    """Return a segment whose copy was only announced in the state that follows a finished copy. Returns None, and
    records the reason in ``found``, if the announced metadata ``begun`` and the files do not agree."""
    if begun is None:
        return stored
    announced, holds = (
        (begun.start_offset, begun.end_offset, begun.size),
        (stored.start_offset, stored.end_offset, stored.size),
    )
    if announced != holds:
        words = "offsets {} to {} in {} bytes".format
        found.leave_out(begun.id, f"its log has {words(*holds)}, its metadata says {words(*announced)}")
        return None
    return replace(
        begun, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED, event_timestamp_ms=stored.event_timestamp_ms
    )


def lacking(
    lineage: Lineage,
    segments: Iterable[RemoteLogSegmentMetadata],
    candidates: Iterable[RemoteLogSegmentMetadata],
    former: Cleanings,
) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the ``candidates`` that serve offsets which neither ``segments`` nor earlier candidates serve. Of several
    with the same offsets, the furthest cleaned one is preferred, then one that is completely on the lineage. Segments
    that cleanings have replaced or rejected are left out. ``former``: the cleanings of deleted segments."""

    def runs_of(segment: RemoteLogSegmentMetadata) -> list[_Run]:
        return [
            (max(first, lineage.log_start or first), last)
            for first, last in servable(segment, log_end=lineage.log_end, leader_epochs=lineage.epochs)
            if last >= (lineage.log_start or 0)
        ]

    def rank(segment: RemoteLogSegmentMetadata) -> tuple[int, int, bool, Offset, int, int]:
        whole = is_within_leader_epochs(segment, log_end=lineage.log_end, leader_epochs=lineage.epochs)
        epoch, offset = reach(segment.cleaned)
        return -epoch, -offset, not whole, segment.start_offset, -segment.end_offset, segment.id.int

    segments, candidates = readable(segments), list(candidates)
    cleanings = Cleanings(former.deleted, former.replaced.items())
    for segment in (*segments, *candidates):
        cleanings.finished(segment)
    covered = served_runs(lineage, filter(cleanings.count, segments))
    for candidate in sorted(filter(cleanings.count, candidates), key=rank):
        lacking = [run for run in runs_of(candidate) if not _is_covered(covered, run)]
        for run in lacking:
            _cover(covered, run)
        if lacking:
            yield candidate


def _is_covered(covered: Sequence[_Run], run: _Run) -> bool:
    """Return whether ``covered`` includes all offsets of ``run``. ``covered``: ranges in ascending order, with a gap
    between each two."""
    index = bisect_right(covered, run[0], key=lambda covered_run: covered_run[0]) - 1
    return index >= 0 and covered[index][1] >= run[1]


def _cover(covered: list[_Run], run: _Run) -> None:
    begin = bisect_left(covered, run[0] - 1, key=lambda covered_run: covered_run[1])
    end = bisect_right(covered, run[1] + 1, key=lambda covered_run: covered_run[0])
    joined = [run, *covered[begin:end]]
    covered[begin:end] = [(min(first for first, _ in joined), max(last for _, last in joined))]
