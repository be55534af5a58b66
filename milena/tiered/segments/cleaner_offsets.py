"""Cleaner-offset maps: how far the leaders of a partition have cleaned it in the tier, and which maps are accepted
(KIP-1272, a draft; the format is Milena's own; docs/decisions/2026-11-22-claims-and-marks.md).

A **cleaner-offset map** has, for each leader epoch, the offset up to which that epoch's leader has cleaned. A leader
starts with the map of its predecessors and adds an entry for its own epoch, which is the highest one of the map.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from milena.protocol.types import LeaderEpoch, Offset


class CleanerOffset(NamedTuple):
    """An entry of a map. ``offset`` is exclusive; None: the leader has started, and cleaned nothing."""

    epoch: LeaderEpoch
    offset: Offset | None


class CleanedTo(NamedTuple):
    """The leader of ``epoch`` has finished a pass of cleaning up to ``offset``, the first dirty one."""

    epoch: LeaderEpoch
    offset: Offset


CleanerOffsets: TypeAlias = tuple[CleanerOffset, ...]
"""A map, by ascending leader epoch; empty: not cleaned."""
NOT_CLEANED: Final[CleanerOffsets] = ()
Reach: TypeAlias = tuple[int, int]
_EPOCH = itemgetter(0)


def author(offsets: CleanerOffsets) -> LeaderEpoch:
    """The epoch of the leader that made the map. Raises IndexError for an empty one."""
    return offsets[-1].epoch


def reach(offsets: CleanerOffsets) -> Reach:
    """Return a key that orders accepted maps by how far the log was cleaned. An accepted map of a later leader includes
    those of former leaders, so its author's entry decides."""
    if not offsets:
        return (-1, -1)
    epoch, offset = offsets[-1]
    return (epoch, -1 if offset is None else offset)


def map_text(offsets: Iterable[Sequence[int | None]]) -> str:
    """Return the map as KIP-1272 writes it: ``{0: 100, 1: null}``."""
    entries = [f"{epoch}: {'null' if offset is None else offset}" for epoch, offset in offsets]
    return "{" + ", ".join(entries) + "}"


def contradicts(later: CleanerOffsets, earlier: CleanerOffsets) -> bool:
    """Whether the map of a later leader has, for some leader epoch, a lower offset than ``earlier``, or none. Epochs
    before the first of ``later`` were pruned from it and do not count."""
    for epoch, offset in earlier:
        if offset is None or epoch < later[0].epoch:
            continue
        found = offset_of(later, epoch)
        if found is None or found < offset:
            return True
    return False


def offset_of(offsets: CleanerOffsets, epoch: LeaderEpoch) -> Offset | None:
    """Return the offset up to which the leader of ``epoch`` has cleaned; None if it has cleaned nothing."""
    index = bisect_left(offsets, epoch, key=_EPOCH)
    return offsets[index].offset if index < len(offsets) and offsets[index].epoch == epoch else None


class Judged(NamedTuple):
    """``accepted``: the maps that no accepted map of a later leader contradicts."""

    accepted: frozenset[CleanerOffsets]
    bounds: Sequence[CleanerOffsets]
    """The accepted maps that are enough to decide about any map: mostly only the last leader's, because it includes
    those of its predecessors."""


def judged(maps: Iterable[CleanerOffsets]) -> Judged:
    """Decide which of ``maps`` are accepted, from the latest author down. Maps of one leader do not contradict each
    other."""
    found: set[CleanerOffsets] = set()
    bounds: list[CleanerOffsets] = []
    by_author = sorted({one for one in maps if one}, key=author, reverse=True)
    for _, group in groupby(by_author, key=author):
        those = [offsets for offsets in group if holds(offsets, bounds)]
        found.update(those)
        for offsets in sorted(those, key=len, reverse=True):
            if not any(_judges_as(bound, offsets) for bound in bounds):
                bounds.append(offsets)
    return Judged(frozenset(found), bounds)


def holds(offsets: CleanerOffsets, bounds: Iterable[CleanerOffsets]) -> bool:
    """Whether the map is accepted: no map in ``bounds`` of a later leader contradicts it."""
    return not any(
        author(bound) > author(offsets) and not _continues(bound, offsets) and contradicts(bound, offsets)
        for bound in bounds
    )


def _judges_as(later: CleanerOffsets, earlier: CleanerOffsets) -> bool:
    """Return whether ``later``, a map of the same or a later leader, contradicts each map that ``earlier`` contradicts.
    It does if both have the same entries for all leaders before the author of ``earlier``: its own entry contradicts no
    map, since ``earlier`` is only compared with maps of former leaders. Then ``later`` has a further entry, since its
    author is not before that of ``earlier``."""
    first = bisect_left(later, earlier[0].epoch, key=_EPOCH)
    end = first + len(earlier) - 1
    return later[first:end] == earlier[:-1] and later[end].epoch >= author(earlier)


def _continues(later: CleanerOffsets, earlier: CleanerOffsets) -> bool:
    """Whether ``later``, a map of a later leader, has all entries of ``earlier``, the last one perhaps with a higher
    offset: then it does not contradict it. This is the usual case, and faster to decide than ``contradicts``, which
    compares each entry."""
    first = bisect_left(later, earlier[0].epoch, key=_EPOCH)
    end = first + len(earlier) - 1
    if later[first:end] != earlier[:-1]:
        return False
    (epoch, offset), (_, own) = later[end], earlier[-1]
    return epoch == author(earlier) and (own is None or (offset is not None and offset >= own))


def resolved(accepted: Iterable[CleanerOffsets], epoch: LeaderEpoch, *, first: LeaderEpoch) -> CleanerOffsets:
    """Return the map with which the leader of ``epoch`` starts: the furthest of the ``accepted`` maps, which includes
    all others. Entries before ``first``, the first epoch of the leader's log, are left out."""
    furthest = max(accepted, key=reach, default=NOT_CLEANED)
    kept = tuple(entry for entry in furthest if first <= entry.epoch < epoch)
    own = offset_of(furthest, epoch)
    return (*kept, CleanerOffset(epoch, own))


def kept_of_deleted(maps: Iterable[CleanerOffsets]) -> list[CleanerOffsets]:
    """Return the maps of deleted segments that must be kept to decide as with all ``maps``: of those that differ only
    in their author's entry, the one with the lowest offset, which is accepted if any of them is."""
    least: dict[tuple[LeaderEpoch, CleanerOffsets], CleanerOffsets] = {}
    for offsets in maps:
        key = author(offsets), offsets[:-1]
        known = least.get(key)
        if known is None or reach(offsets) < reach(known):
            least[key] = offsets
    return list(least.values())
