"""Finds offsets whose records were removed because of later values that the log has lost since (KIP-1272, a draft).

A cleaner-offset map says up to which offset each leader has looked for later values of a key. An unclean election may
truncate those later values after the earlier ones were cleaned away: then both are lost. How much of a former leader's
log is left follows from the log's own leader epochs or, if that leader's epoch has no records in the log, from the
epochs of the segments that the leader copied.
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
    """Records at offsets ``first`` to ``last`` may be missing because of later ones at ``lost_first`` to ``lost_last``,
    which the log no longer has. All offsets are inclusive."""

    first: Offset
    last: Offset
    lost_first: Offset
    lost_last: Offset


class KnownEpochs:
    """The logs of former leaders, as far as segments show them: a log that contains a record of an epoch has, up to
    that record, the same records as the log of that epoch's leader."""

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
        """Return the offset, at most ``bound``, up to which the log of the leader of ``epoch`` and this log are the
        same. Offsets below this log's first epoch were deleted from it, and count as the same.

        An epoch without records in this log is traced back to the epoch before it, until one is found in this log.
        """
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
    """Return, for each range of lost values, the offsets before it that cleaned ``segments`` serve, in order.

    ``counts``: whether a segment is read; ``others``: known segments that serve nothing. ``leader_epochs`` and
    ``log_end`` (exclusive) are those of the log.
    """
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
                    if first < one[0]:  # later values can only have replaced records before them
                        found.setdefault(one, []).append((first, Offset(min(last, one[0] - 1))))
    return sorted(LostValues(*run, *one) for one, runs in found.items() for run in _joined(runs))


def _lost(
    offsets: CleanerOffsets,
    known: KnownEpochs,
    ends: dict[CleanerOffset, Offset],
    leader_epochs: Sequence[EpochEntry],
    log_end: Offset,
) -> list[tuple[Offset, Offset]]:
    """Return the ranges below a map's offsets that were truncated from the log. Ranges of several leaders may overlap.
    ``ends`` caches the result for each entry."""
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
    """Return the ranges (inclusive) in order; those that overlap or follow each other are merged."""
    joined: list[tuple[Offset, Offset]] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], Offset(max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
