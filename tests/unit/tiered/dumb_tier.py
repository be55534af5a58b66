"""A listing of segments that looks at each of them for every question."""

from __future__ import annotations

from collections.abc import Sequence

from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState


class DumbTier:
    """Implements ``tiered.segments.tiered_offsets.Listing``."""

    def __init__(self, *segments: RemoteLogSegmentMetadata) -> None:
        self._segments = segments

    def segments(self) -> Sequence[RemoteLogSegmentMetadata]:
        listed = [one for one in self._segments if one.state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED]
        return sorted(listed, key=lambda one: one.start_offset)

    def segments_of_epoch(self, epoch: LeaderEpoch) -> Sequence[RemoteLogSegmentMetadata]:
        return [one for one in self.segments() if epoch in dict(one.epochs)]

    def highest_offset_for_epoch(self, epoch: LeaderEpoch) -> Offset | None:
        copied = [one for one in self._segments if one.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED]
        return max((one.epoch_end(epoch) for one in copied if epoch in dict(one.epochs)), default=None)

    def counts(self, segment: RemoteLogSegmentMetadata) -> bool:
        return True
