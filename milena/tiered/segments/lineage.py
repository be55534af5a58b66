"""Which segments of the tier, and which of their offsets, belong to a leader's log (docs/kafka-semantics.md: Segments
within the leader epochs).

A leader epoch has one leader, so two logs that hold an offset in the same epoch hold the same record there. After an
unclean election a segment may agree with the leader's log in some of its offsets only: those are read, and whether the
segment is on the lineage as a whole decides what retention counts, and which one is read where several hold an offset.

``leader_epochs`` are those of a ``LeaderEpochCache``, oldest first; from elsewhere they go through ``filtered``.
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
    """Without the epochs that have no records: the next one begins where they do. The last one stays."""
    every = list(epochs)
    return [entry for entry, after in pairwise(every) if entry.start != after.start] + every[-1:]


def is_within_leader_epochs(
    segment: RemoteLogSegmentMetadata, *, log_end: Offset, leader_epochs: Sequence[EpochEntry]
) -> bool:
    """Whether the segment as a whole is part of the log that ends before ``log_end``.

    Its epochs must be the log's, each as long as there; the first may have begun earlier where it is the log's first
    (the log start has moved since), and the last may go on in the log.
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
        if index == begin and found > 0 and start < leader_epochs[found].start:
            return False
        after = leader_epochs[found + 1] if found + 1 < len(leader_epochs) else None
        if epoch != last:
            if after != epochs[index + 1]:
                return False
        elif after is not None and segment.end_offset > after.start - 1:
            return False
    return segment.end_offset < log_end


def servable(
    segment: RemoteLogSegmentMetadata, *, log_end: Offset, leader_epochs: Sequence[EpochEntry]
) -> list[tuple[Offset, Offset]]:
    """The runs (first, last offset) of the segment that are the log's: held in the epoch that the log gives them."""
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
    """The run around ``offset`` that may be served; None where the segment must not serve it."""
    for first, last in servable(segment, log_end=log_end, leader_epochs=leader_epochs):
        if first <= offset <= last:
            return first, last
    return None


def epoch_at(offset: Offset, leader_epochs: Sequence[EpochEntry]) -> int | None:
    """Index in ``leader_epochs`` of the epoch that holds ``offset``; None before the first."""
    index = bisect_left(leader_epochs, offset + 1, key=_START) - 1
    return index if index >= 0 else None


_START = itemgetter(1)


def _index(epochs: Sequence[EpochEntry], epoch: LeaderEpoch) -> int | None:
    index = bisect_left(epochs, epoch, key=_EPOCH)
    return index if index < len(epochs) and epochs[index].epoch == epoch else None
