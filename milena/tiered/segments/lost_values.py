"""Which offsets of a log were cleaned in favour of later values that the log has lost since (KIP-1272, a draft).

A cleaner-offset map says how far each leader has looked for later values. An unclean election may cut those off, after
the earlier ones were cleaned away: nobody has either then. What is left of a former leader's log is told by the log's
own leader epochs, and where that epoch has no records in it, by those of the segments which that leader has copied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.segments.cleaner_offsets import CleanerOffset, CleanerOffsets
from milena.tiered.segments.lineage import filtered, servable
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState

_EPOCH = itemgetter(0)


class LostValues(NamedTuple):
    """Inclusive. Records at ``first`` to ``last`` may be missing because of later ones at ``lost_first`` to
    ``lost_last``, which the log does not have any more."""

    first: Offset
    last: Offset
    lost_first: Offset
    lost_last: Offset


class KnownEpochs:
    """What segments tell of the logs of former leaders: a log that has a record of an epoch is, up to there, the log of
    that epoch's leader."""

    __slots__ = ("_before", "_starts")

    def __init__(self, segments: Iterable[RemoteLogSegmentMetadata]) -> None:
        self._starts: dict[LeaderEpoch, Offset] = {}
        self._before: dict[LeaderEpoch, LeaderEpoch] = {}
        for segment in segments:
            epochs = filtered(segment.epochs)
            for epoch, start in epochs:
                known = self._starts.get(epoch)
                if known is None or start < known:
                    self._starts[epoch] = start
            for before, after in pairwise(epochs):
                self._before[after.epoch] = before.epoch

    def shared_end(
        self, epoch: LeaderEpoch, bound: Offset, leader_epochs: Sequence[EpochEntry], log_end: Offset
    ) -> Offset:
        """The offset before which the log of the leader of ``epoch``, as far as ``bound``, is the log's own. Offsets
        below the log's first epoch were deleted from it, and count as its own."""
        at, current = bound, epoch
        while True:
            index = bisect_right(leader_epochs, current, key=_EPOCH) - 1
            if index < 0:
                return Offset(min(at, max(leader_epochs[0].start, 0)))
            if leader_epochs[index].epoch == current:
                end = leader_epochs[index + 1].start if index + 1 < len(leader_epochs) else log_end
                return Offset(min(at, end))
            at = min(at, self._starts.get(current, at))
            current = self._before.get(current, leader_epochs[index].epoch)


def lost_values(
    segments: Iterable[RemoteLogSegmentMetadata],
    counts: Callable[[RemoteLogSegmentMetadata], bool],
    *,
    leader_epochs: Sequence[EpochEntry],
    log_end: Offset,
    others: Iterable[RemoteLogSegmentMetadata] = (),
) -> list[LostValues]:
    """For each range that was lost, the offsets that ``segments`` serve and that were cleaned in favour of it, in
    order. ``counts``: which of them are read at all; ``others``: segments that are known and serve nothing.
    ``leader_epochs`` and ``log_end`` (exclusive) are the log's."""
    every = list(segments)
    cleaned = [
        one for one in every if one.cleaned and one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED and counts(one)
    ]
    if not cleaned or not leader_epochs:
        return []
    known = KnownEpochs([*every, *others])
    ends: dict[CleanerOffset, Offset] = {}
    lost: dict[CleanerOffsets, list[tuple[Offset, Offset]]] = {}
    found: dict[tuple[Offset, Offset], list[tuple[Offset, Offset]]] = {}
    for segment in cleaned:
        ranges = lost.get(segment.cleaned)
        if ranges is None:
            ranges = lost[segment.cleaned] = _lost(segment.cleaned, known, ends, leader_epochs, log_end)
        if ranges:
            for first, last in servable(segment, log_end=log_end, leader_epochs=leader_epochs):
                for one in ranges:
                    if first < one[0]:  # that leader had no other records of this log
                        found.setdefault(one, []).append((first, Offset(min(last, one[0] - 1))))
    return sorted(LostValues(*run, *one) for one, runs in found.items() for run in _joined(runs))


def _lost(
    offsets: CleanerOffsets,
    known: KnownEpochs,
    ends: dict[CleanerOffset, Offset],
    leader_epochs: Sequence[EpochEntry],
    log_end: Offset,
) -> list[tuple[Offset, Offset]]:
    """The ranges below a map's offsets that are not the log's; ``ends`` keeps what was found of an entry. Those of
    several leaders may overlap: each has cleaned up to where its log is another."""
    ranges = set()
    for entry in offsets:
        if entry.offset is None:
            continue
        end = ends.get(entry)
        if end is None:
            end = known.shared_end(entry.epoch, entry.offset, leader_epochs, log_end)
            end = ends[entry] = Offset(max(end, leader_epochs[0].start))
        if end < entry.offset:
            ranges.add((end, Offset(entry.offset - 1)))
    return sorted(ranges)


def _joined(runs: Iterable[tuple[Offset, Offset]]) -> list[tuple[Offset, Offset]]:
    """Ranges (inclusive) in order, those that overlap or follow each other as one."""
    joined: list[tuple[Offset, Offset]] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], Offset(max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
