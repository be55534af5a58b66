"""A lost object of the tier explains one hole within its offsets."""

from __future__ import annotations

import pytest

from milena.lab.chaos.holes import Excuses, Hole

PLACE = ("tiered", 0)


@pytest.mark.parametrize(
    ("lost", "holes", "explained"),
    [
        ([(10, 19)], [(10, 19)], [True]),
        ([(10, 19)], [(12, 15)], [True]),
        ([(10, 19)], [(10, 20)], [False]),
        ([(10, 19)], [(9, 19)], [False]),
        ([(10, 19)], [(30, 35)], [False]),
        ([(10, 19)], [(10, 12), (15, 19)], [True, False]),
        ([(10, 19), (20, 29)], [(10, 29)], [True]),
        ([(10, 19), (20, 29)], [(10, 12), (20, 22)], [True, True]),
        ([(10, 19), (30, 39)], [(10, 39)], [False]),
        ([(0, 99), (40, 120)], [(0, 59), (71, 120)], [True, True]),
        ([], [(0, 1)], [False]),
    ],
)
def test_a_lost_object_explains_one_hole_within_its_offsets(
    lost: list[Hole], holes: list[Hole], explained: list[bool]
) -> None:
    excuses = Excuses({PLACE: lost})
    assert [excuses.take(PLACE, hole) for hole in holes] == explained
    assert not Excuses({("tiered", 1): lost}).take(PLACE, holes[0])
