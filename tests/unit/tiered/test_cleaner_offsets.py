"""Which cleaner-offset maps are accepted: the fast decisions are those of the rule, map by map."""

from __future__ import annotations

from itertools import groupby
from random import Random

import pytest

from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.segments.cleaner_offsets import (
    CleanerOffset,
    CleanerOffsets,
    author,
    contradicts,
    holds,
    judged,
    kept_of_deleted,
)
from tests.unit.tiered.segments import offsets

SETS = 150


def drawn(random: Random) -> CleanerOffsets:
    """A map of one of five leaders that may have pruned earlier epochs, with few different offsets."""
    own = random.randrange(5)
    first = random.randint(0, own)
    former = [epoch for epoch in range(first, own) if random.random() < 0.7]
    values = (None, 5, 5, 6, 7)
    return tuple(
        CleanerOffset(LeaderEpoch(epoch), None if value is None else Offset(value))
        for epoch in (*former, own)
        for value in [random.choice(values)]
    )


def accepted(maps: list[CleanerOffsets]) -> set[CleanerOffsets]:
    """The rule: from the latest author down, a map is accepted if no accepted one of a later leader contradicts it."""
    found: set[CleanerOffsets] = set()
    for _, group in groupby(sorted(set(maps), key=author, reverse=True), key=author):
        found |= {one for one in group if agrees(one, found)}
    return found


def agrees(one: CleanerOffsets, with_maps: set[CleanerOffsets]) -> bool:
    return not any(author(other) > author(one) and contradicts(other, one) for other in with_maps)


@pytest.mark.parametrize("seed", range(8))
def test_the_bounds_decide_about_any_map_as_all_accepted_maps_do(seed: int) -> None:
    random = Random(seed)
    for _ in range(SETS):
        maps = [drawn(random) for _ in range(random.randint(1, 6))]
        found = judged(maps)
        assert found.accepted == accepted(maps)
        for probe in (drawn(random) for _ in range(20)):
            assert holds(probe, found.bounds) == agrees(probe, accepted(maps)), (maps, probe)


@pytest.mark.parametrize("seed", range(8))
def test_of_deleted_maps_those_are_kept_that_decide_as_all(seed: int) -> None:
    random = Random(seed)
    for _ in range(SETS):
        deleted = [drawn(random) for _ in range(random.randint(1, 6))]
        listed = [drawn(random) for _ in range(random.randint(1, 4))]
        kept = kept_of_deleted(deleted)
        assert accepted([*listed, *kept]) & set(listed) == accepted([*listed, *deleted]) & set(listed), (
            deleted,
            listed,
        )


def test_of_a_leaders_deleted_maps_the_one_with_the_lowest_offset_is_kept() -> None:
    further, nearer = offsets({0: 5, 1: 9}), offsets({0: 5, 1: 8})
    for maps in ([further, nearer], [nearer, further]):
        assert kept_of_deleted([*maps, offsets({0: 4, 1: 7})]) == [nearer, offsets({0: 4, 1: 7})]
