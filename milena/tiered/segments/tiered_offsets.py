"""Which offsets of a log are in the tier, according to its leader epochs (docs/kafka-semantics.md: Copy eligibility,
Highest remote offset)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import LeaderEpochCache
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata


class Listing(Protocol):
    """The part of the metadata cache that is used here."""

    def highest_offset_for_epoch(self, epoch: LeaderEpoch) -> Offset | None:
        """Return the last offset of ``epoch`` that was ever copied, even if it was deleted from the tier since."""
        ...

    def segments_of_epoch(self, epoch: LeaderEpoch) -> Sequence[RemoteLogSegmentMetadata]:
        """Return the segments with records of ``epoch``, by start offset."""
        ...

    def segments(self) -> Sequence[RemoteLogSegmentMetadata]:
        """Return all segments in any state except DELETE_SEGMENT_FINISHED, by start offset."""
        ...

    def counts(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether the segment is valid after all cleanings (``cleanings``)."""
        ...


class RemoteEnd(NamedTuple):
    """The last offset of a log that is in the tier, and its epoch."""

    offset: Offset
    epoch: LeaderEpoch


def find_highest_remote_offset(tier: Listing, epochs: LeaderEpochCache, *, log_end: Offset) -> RemoteEnd | None:
    """Return the highest offset of this log in the tier; None if there is none.

    The newest copied epoch decides. If the tier has higher offsets in that epoch than this log, those are on another
    lineage (KAFKA-15241).
    """
    for entry in reversed(epochs.entries):
        highest = tier.highest_offset_for_epoch(entry.epoch)
        if highest is None:
            continue
        end = epochs.end_offset_for(entry.epoch, log_end=log_end)
        if end is not None and end.offset <= highest:
            return RemoteEnd(Offset(end.offset - 1), end.epoch)
        return RemoteEnd(highest, entry.epoch)
    return None


def remote_log_start(tier: Listing, epochs: LeaderEpochCache) -> Offset | None:
    """Return the log's start in the tier: the start of the first segment of the oldest epoch that has segments; None if
    no epoch of the log has any."""
    for entry in epochs.entries:
        segments = tier.segments_of_epoch(entry.epoch)
        if segments:
            return segments[0].start_offset
    return None
