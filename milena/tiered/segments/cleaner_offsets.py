"""How far the leaders of a partition have cleaned it in the tier, and which of their claims to that are accepted
(KIP-1272, a draft; the form is Milena's own).

A **cleaner-offset map** has, for each leader epoch, the offset before which that epoch's leader has cleaned. A leader
begins with the map of its predecessors and adds an entry for its own epoch, the highest one of the map.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from milena.protocol.types import LeaderEpoch, Offset


class CleanerOffset(NamedTuple):
    """``offset`` is exclusive; None: the leader has begun, and cleaned nothing."""

    epoch: LeaderEpoch
    offset: Offset | None


class CleanedTo(NamedTuple):
    """The leader of ``epoch`` has finished to clean what the tier had before ``offset``, the first dirty one."""

    epoch: LeaderEpoch
    offset: Offset


CleanerOffsets: TypeAlias = tuple[CleanerOffset, ...]
"""A map, by rising leader epoch; empty: not cleaned."""
NOT_CLEANED: Final[CleanerOffsets] = ()
Reach: TypeAlias = tuple[int, int]
_EPOCH = itemgetter(0)


def author(offsets: CleanerOffsets) -> LeaderEpoch:
    """The leader epoch in which a map was made. Raises IndexError for an empty one."""
    return offsets[-1].epoch


def reach(offsets: CleanerOffsets) -> Reach:
    """Compares how far two accepted maps say that the log was cleaned: a later leader's has all of a former one's."""
    if not offsets:
        return (-1, -1)
    epoch, offset = offsets[-1]
    return (epoch, -1 if offset is None else offset)


def map_text(offsets: Iterable[Sequence[int | None]]) -> str:
    """As KIP-1272 writes it: ``{0: 100, 1: null}``."""
    entries = [f"{epoch}: {'null' if offset is None else offset}" for epoch, offset in offsets]
    return "{" + ", ".join(entries) + "}"


def contradicts(later: CleanerOffsets, earlier: CleanerOffsets) -> bool:
    """Whether the map of a later leader says that a former one, in some leader epoch, has cleaned less than
    ``earlier`` says. Epochs before the first of ``later`` were pruned, and say nothing."""
    for epoch, offset in earlier:
        if offset is None or epoch < later[0].epoch:
            continue
        found = offset_of(later, epoch)
        if found is None or found < offset:
            return True
    return False


def offset_of(offsets: CleanerOffsets, epoch: LeaderEpoch) -> Offset | None:
    """The offset before which the leader of ``epoch`` has cleaned; None if it has not."""
    index = bisect_left(offsets, epoch, key=_EPOCH)
    return offsets[index].offset if index < len(offsets) and offsets[index].epoch == epoch else None


class Judged(NamedTuple):
    """Of some maps, those that no accepted one of a later leader contradicts."""

    accepted: frozenset[CleanerOffsets]
    bounds: Sequence[CleanerOffsets]
    """Those of them that judge as all of them do: a leader's map has those of its predecessors, so mostly the last."""


def judged(maps: Iterable[CleanerOffsets]) -> Judged:
    """Maps of one leader do not judge each other."""
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
    """Whether none of the ``bounds`` of later leaders contradicts the map."""
    return not any(
        author(bound) > author(offsets) and not _continues(bound, offsets) and contradicts(bound, offsets)
        for bound in bounds
    )


def _judges_as(later: CleanerOffsets, earlier: CleanerOffsets) -> bool:
    """Whether what ``earlier`` contradicts ``later`` does, too, of a later leader or the same one: it has the same of
    all leaders before that of ``earlier``, who judges those alone."""
    first = bisect_left(later, earlier[0].epoch, key=_EPOCH)
    end = first + len(earlier) - 1
    if later[0].epoch > earlier[0].epoch or later[first:end] != earlier[:-1]:
        return False
    return end >= len(later) or later[end].epoch >= author(earlier)


def _continues(later: CleanerOffsets, earlier: CleanerOffsets) -> bool:
    """Whether ``later`` has all entries of ``earlier``, its last one perhaps with a higher offset: then it does not
    contradict it. The usual case, which is told without a look at each entry."""
    first = bisect_left(later, earlier[0].epoch, key=_EPOCH)
    end = first + len(earlier) - 1
    if end >= len(later) or later[first:end] != earlier[:-1]:
        return False
    (epoch, offset), (_, own) = later[end], earlier[-1]
    return epoch == author(earlier) and (own is None or (offset is not None and offset >= own))


def resolved(accepted: Iterable[CleanerOffsets], epoch: LeaderEpoch, *, first: LeaderEpoch) -> CleanerOffsets:
    """The map with which the leader of ``epoch`` begins: the furthest of the ``accepted`` ones, which has all others,
    without what is before the lineage's ``first`` epoch."""
    furthest = max(accepted, key=reach, default=NOT_CLEANED)
    kept = tuple(entry for entry in furthest if first <= entry.epoch < epoch)
    own = offset_of(furthest, epoch)
    return (*kept, CleanerOffset(epoch, own))


def kept_of_deleted(maps: Iterable[CleanerOffsets]) -> list[CleanerOffsets]:
    """The maps that judge others as all of ``maps`` do: of those that differ in their author's own entry alone, the one
    with the lowest offset, which is accepted if any of them is."""
    least: dict[tuple[LeaderEpoch, CleanerOffsets], CleanerOffsets] = {}
    for offsets in maps:
        key = author(offsets), offsets[:-1]
        known = least.get(key)
        if known is None or reach(offsets) < reach(known):
            least[key] = offsets
    return list(least.values())
