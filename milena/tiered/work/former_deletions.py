"""Which deletions by former leaders a new leader does not accept (docs/decisions/2026-11-22-claims-and-marks.md). Plain
functions.

A former leader may have decided by another retention, or by another lineage. The new leader accepts its
DELETE_SEGMENT_STARTED if it would delete the segment as well, or if other segments have all offsets that its log needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.lineage import servable
from milena.tiered.segments.segment_metadata import UNFENCED, RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.segments.tiered_offsets import Listing
from milena.tiered.work.retention import LogView, decide

_COPIED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_MARKED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


def unjustified(
    cache: RemoteLogMetadataCache, log: LogView, local_start: Offset, *, by: LeaderEpoch, now: int
) -> list[RemoteLogSegmentMetadata]:
    """Return the complete segments in DELETE_SEGMENT_STARTED by a leader before ``by`` that are needed for offsets
    between the log start and ``local_start``. Deletions without a leader epoch are those of Kafka's brokers, and are
    accepted."""
    marked = {
        segment.id: segment
        for segment in cache.segments()
        if segment.state is _MARKED and segment.was_copied and UNFENCED < segment.leader_epoch < by
    }
    if not marked:
        return []
    expiration = decide(_AsIfNotDeleted(cache, marked.keys()), log, now=now)  # expired ones are below the new log start
    lacking = list(gaps(cache, log.epochs, Offset(max(log.log_start, expiration.log_start or 0)), local_start))
    return [segment for segment in marked.values() if _serves(segment, lacking, log.epochs, local_start)]


def gaps(
    cache: RemoteLogMetadataCache,
    epochs: Sequence[EpochEntry],
    first: Offset,
    end: Offset,
    *,
    without: Collection[UUID] = (),
) -> Iterator[tuple[Offset, Offset]]:
    """Yield the ranges (first, last offset) between ``first`` and ``end`` (exclusive) that no segment serves. Segments
    whose ids are in ``without`` are ignored."""
    at = first
    for served in cache.served(first, leader_epochs=epochs, log_end=end, without=without):
        if served.first > at:
            yield at, Offset(served.first - 1)
        at = Offset(served.last + 1)
    if at < end:
        yield at, Offset(end - 1)


def is_needed(
    cache: RemoteLogMetadataCache,
    segment: RemoteLogSegmentMetadata,
    epochs: Sequence[EpochEntry],
    first: Offset,
    end: Offset,
    at_risk: Collection[UUID],
) -> bool:
    """Whether a segment has offsets of the log between ``first`` and ``end`` (exclusive) that no other segment serves.
    ``at_risk``: ids of segments that do not count, since they may be deleted."""
    lacking = list(gaps(cache, epochs, first, end, without=at_risk))
    return _serves(segment, lacking, epochs, end)


def _serves(
    segment: RemoteLogSegmentMetadata,
    lacking: Sequence[tuple[Offset, Offset]],
    epochs: Sequence[EpochEntry],
    end: Offset,
) -> bool:
    runs = servable(segment, log_end=end, leader_epochs=epochs)
    return any(run[0] <= last and first <= run[1] for run in runs for first, last in lacking)


class _AsIfNotDeleted:
    """Implements ``Listing`` with the segments of another listing, some of which are shown in the state before their
    deletion started."""

    def __init__(self, listing: Listing, marked: Collection[UUID]) -> None:
        self._listing = listing
        self._marked = marked

    def highest_offset_for_epoch(self, epoch: LeaderEpoch) -> Offset | None:
        return self._listing.highest_offset_for_epoch(epoch)

    def segments_of_epoch(self, epoch: LeaderEpoch) -> Sequence[RemoteLogSegmentMetadata]:
        return [self._before(one) for one in self._listing.segments_of_epoch(epoch)]

    def segments(self) -> Sequence[RemoteLogSegmentMetadata]:
        return [self._before(one) for one in self._listing.segments()]

    def counts(self, segment: RemoteLogSegmentMetadata) -> bool:
        return self._listing.counts(segment)

    def _before(self, segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        return replace(segment, state=_COPIED) if segment.id in self._marked else segment
