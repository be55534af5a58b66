"""Which segments of the tier, and which of their offsets, belong to a leader's log: Kafka's
``isRemoteSegmentWithinLeaderEpochs`` (docs/kafka-semantics.md: Segments within the leader epochs).

The **lineage** of a log, also called its epoch chain, is its sequence of leader epochs with their start offsets
(Kafka's leader-epoch-checkpoint), up to its log end. A leader epoch has one leader, so two logs that contain an offset
in the same epoch have the same record there. A segment is on the lineage if its epochs are those of the log. After an
unclean election only some offsets of a segment may be on the lineage: only those are served. A segment counts for
retention only if it is completely on the lineage, and is then preferred to others with the same offset.

``leader_epochs`` are those of a ``LeaderEpochCache``, oldest first; epochs from other sources must go through
``filtered``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter

from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata

_EPOCH = itemgetter(0)


def filtered(epochs: Iterable[EpochEntry]) -> list[EpochEntry]:
    """Remove epochs without records: the next epoch has the same start offset. The last epoch is kept."""
    every = list(epochs)
    return [entry for entry, after in pairwise(every) if entry.start != after.start] + every[-1:]


def is_within_leader_epochs(
    segment: RemoteLogSegmentMetadata, *, log_end: Offset, leader_epochs: Sequence[EpochEntry]
) -> bool:
    """Whether the whole segment is on the lineage of the log that ends before ``log_end``.

    Its epochs must be the log's, with the same end offsets; the first may have begun earlier if it is the log's first
    (the log start has moved since), and the last may continue in the log.
    """
    epochs = filtered(segment.epochs)
    last = epochs[-1].epoch
    if not leader_epochs or not leader_epochs[0].epoch <= last <= leader_epochs[-1].epoch:
        return False
    begin = bisect_left(epochs, leader_epochs[0].epoch, key=_EPOCH)
    for index in range(begin, len(epochs)):
        epoch, start = epochs[index]
        found = _index(leader_epochs, epoch)
        if found is None:
            return False
        # Only the log's first epoch may have begun earlier in the segment: the log start has moved since.
        if index == begin and found > 0 and start < leader_epochs[found].start:
            return False
        after = leader_epochs[found + 1] if found + 1 < len(leader_epochs) else None
        if epoch != last:  # a complete epoch: the next one must start at the same offset in the log
            if after != epochs[index + 1]:
                return False
        elif after is not None and segment.end_offset > after.start - 1:
            return False
    return segment.end_offset < log_end


def servable(
    segment: RemoteLogSegmentMetadata, *, log_end: Offset, leader_epochs: Sequence[EpochEntry]
) -> list[tuple[Offset, Offset]]:
    """Return the ranges (first, last offset) of the segment that are on the lineage: those for which the log has the
    same epoch."""
    runs: list[tuple[Offset, Offset]] = []
    epochs = segment.epochs
    ends = len(leader_epochs)
    for index, (epoch, start) in enumerate(epochs):
        found = _index(leader_epochs, epoch)
        if found is None:
            continue
        end = epochs[index + 1].start if index + 1 < len(epochs) else segment.end_offset + 1
        first = max(start, segment.start_offset, leader_epochs[found].start)
        past = min(end, leader_epochs[found + 1].start if found + 1 < ends else log_end)
        if first >= past:
            continue
        if runs and runs[-1][1] + 1 == first:
            first = runs.pop()[0]
        runs.append((first, Offset(past - 1)))
    return runs


def serving_range(
    segment: RemoteLogSegmentMetadata, offset: Offset, *, log_end: Offset, leader_epochs: Sequence[EpochEntry]
) -> tuple[Offset, Offset] | None:
    """Return the range around ``offset`` that may be served; None if the segment must not serve it."""
    for first, last in servable(segment, log_end=log_end, leader_epochs=leader_epochs):
        if first <= offset <= last:
            return first, last
    return None


def epoch_at(offset: Offset, leader_epochs: Sequence[EpochEntry]) -> int | None:
    """Return the index in ``leader_epochs`` of the epoch that contains ``offset``; None before the first."""
    index = bisect_left(leader_epochs, offset + 1, key=_START) - 1
    return index if index >= 0 else None


_START = itemgetter(1)


def _index(epochs: Sequence[EpochEntry], epoch: LeaderEpoch) -> int | None:
    index = bisect_left(epochs, epoch, key=_EPOCH)
    return index if index < len(epochs) and epochs[index].epoch == epoch else None
