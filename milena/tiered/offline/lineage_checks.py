"""Checks which offsets of a log the segments in the tier serve: gaps, overlaps, segments that are never read, and
records that were removed because of later values that are lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from milena.protocol.types import Offset
from milena.protocol.uuids import to_text
from milena.tiered.offline.findings import GAP, LOST_VALUES, OVERLAP, REJECTED, REPLACED, UNREFERENCED, Finding
from milena.tiered.rebuilding.epoch_chains import Lineage, readable, served_runs
from milena.tiered.segments.cleaner_offsets import map_text
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.lineage import is_within_leader_epochs, servable
from milena.tiered.segments.lost_values import lost_values
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition


def check_cleanings(
    partition: TopicIdPartition, segments: Iterable[RemoteLogSegmentMetadata], cleanings: Cleanings
) -> Iterator[Finding]:
    """Find the segments that are not read because a cleaning has replaced them or their own cleaning is rejected. The
    leader deletes them later."""
    for segment in readable(segments) if cleanings else ():
        rejected_by, replaced_by = cleanings.exclusion(segment)
        if rejected_by is not None:
            what = f"its cleaner offsets {map_text(segment.cleaned)} are contradicted by {map_text(rejected_by)}"
            yield Finding(REJECTED, f"{what} of a later leader: it is not read", partition, segment.id, harmless=True)
        elif replaced_by is not None:
            what = f"a segment with the cleaner offsets {map_text(replaced_by)} has replaced it: it is not read"
            yield Finding(REPLACED, what, partition, segment.id, harmless=True)


def check_lineage(
    partition: TopicIdPartition,
    segments: Sequence[RemoteLogSegmentMetadata],
    cleanings: Cleanings,
    lineage: Lineage,
    deleted: Sequence[RemoteLogSegmentMetadata],
) -> Iterator[Finding]:
    """Find, for the leader epochs of the log, segments that serve nothing, offsets in no segment, offsets in two
    segments, and records that were removed because of later values that the log has lost. ``deleted``: segments that
    were in the tier before."""
    every = [segment for segment in readable(segments) if cleanings.count(segment)]
    serving = []
    for segment in every:
        if servable(segment, log_end=lineage.log_end, leader_epochs=lineage.epochs):
            serving.append(segment)
        else:
            what = f"offsets {segment.start_offset} to {segment.end_offset} are of no epoch of this log"
            older = segment.end_offset < lineage.epochs[0].start  # its leader is about to delete it
            yield Finding(UNREFERENCED, what, partition, segment.id, harmless=older)
    runs = served_runs(lineage, serving)
    if runs and lineage.log_start is not None:
        for first, last in _lacking(lineage, runs[0][0], served_runs(lineage, deleted)):
            yield Finding(GAP, f"offsets {first} to {last} are in no segment", partition)
    for (_, last), (first, _) in pairwise(runs):
        yield Finding(GAP, f"offsets {last + 1} to {first - 1} are in no segment", partition)
    for first, last, lost_first, lost_last in lost_values(
        segments, cleanings.count, leader_epochs=lineage.epochs, log_end=lineage.log_end, others=deleted
    ):
        what = f"offsets {first} to {last} were cleaned because of offsets {lost_first} to {lost_last}"
        yield Finding(LOST_VALUES, f"{what}, which this log has lost in an unclean election", partition)
    whole = [
        segment
        for segment in serving
        if is_within_leader_epochs(segment, log_end=lineage.log_end, leader_epochs=lineage.epochs)
    ]
    reach: RemoteLogSegmentMetadata | None = None
    for segment in sorted(whole, key=lambda metadata: (metadata.start_offset, metadata.end_offset, metadata.id.int)):
        if reach is not None and segment.start_offset <= reach.end_offset:
            last = Offset(min(segment.end_offset, reach.end_offset))
            what = f"offsets {segment.start_offset} to {last} are in {to_text(reach.id)} too"
            yield Finding(OVERLAP, what, partition, segment.id, harmless=True)  # of one lineage: the same records
        if reach is None or segment.end_offset > reach.end_offset:
            reach = segment


def _lacking(
    lineage: Lineage, begin: Offset, deleted: Sequence[tuple[Offset, Offset]]
) -> Iterator[tuple[Offset, Offset]]:
    """Yield the ranges before ``begin``, the first offset in the tier, that the log should still have. The recorded log
    start may be a minute old, so two more facts are used: the log starts where its first epoch does, or later, and
    after all ``deleted`` ranges."""
    at = max(lineage.log_start or Offset(0), lineage.epochs[0].start)
    for first, last in deleted:
        if last >= at:
            if first > at and at < begin:
                yield at, Offset(min(first, begin) - 1)
            at = Offset(max(at, last + 1))
    if at < begin:
        yield at, Offset(begin - 1)
