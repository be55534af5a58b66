"""Which local segments are copied (docs/kafka-semantics.md: Copy eligibility)."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.types import Offset
from milena.tiered.segments.eligibility import CopyLag, candidates, due

LAST = 1 << 40


def chosen(bases: list[int], *, copied: int = -1, log_start: int = 0, stable: int = LAST) -> list[tuple[int, int]]:
    found = candidates(
        [Offset(base) for base in bases], copied=Offset(copied), log_start=Offset(log_start), stable=Offset(stable)
    )
    return [(candidate.base, candidate.end) for candidate in found]


def test_the_active_segment_is_never_copied() -> None:
    assert chosen([0, 10, 20]) == [(0, 10), (10, 20)]
    assert chosen([0]) == []


@pytest.mark.parametrize(("stable", "count"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2)])
def test_a_segment_waits_until_all_its_records_are_stable(stable: int, count: int) -> None:
    assert len(chosen([0, 10, 20, 30], stable=stable)) == count


def test_what_is_in_the_tier_is_not_copied_again() -> None:
    assert chosen([0, 10, 20, 30], copied=9) == [(10, 20), (20, 30)]
    assert chosen([0, 10, 20, 30], copied=19, stable=19) == []


def test_a_segment_that_another_leader_cut_elsewhere_is_copied_whole() -> None:
    assert chosen([0, 10, 20, 30], copied=12) == [(10, 20), (20, 30)]


def test_what_lies_before_the_log_start_is_not_copied() -> None:
    assert chosen([0, 10, 20, 30], log_start=10) == [(10, 20), (20, 30)]


@given(
    st.lists(st.integers(0, 60), min_size=1, unique=True).map(sorted),
    st.integers(-1, 60),
    st.integers(0, 60),
    st.integers(0, 70),
)
def test_exactly_the_closed_stable_segments_with_something_new(
    bases: list[int], copied: int, log_start: int, stable: int
) -> None:
    expected = [
        (base, end)
        for base, end in pairwise(bases)
        if end <= stable and any(offset > copied and offset >= log_start for offset in range(base, end))
    ]
    if copied >= stable:
        expected = []
    assert chosen(bases, copied=copied, log_start=log_start, stable=stable) == expected


class Closed(NamedTuple):
    """A closed segment; ``newest``: its largest timestamp."""

    newest: int
    size: int

    def largest_timestamp(self) -> int:
        return self.newest


AGE = [Closed(newest, 100) for newest in (1000, 2000, 3000, 4000)]


@pytest.mark.parametrize(
    ("ms", "size", "count"),
    [
        (0, -1, 4),
        (5, 0, 4),
        (-1, -1, 0),
        (2000, -1, 2),
        (2001, -1, 1),
        (5000, -1, 0),
        (-1, 300, 1),
        (-1, 301, 0),
        (-1, 100, 3),
        (5000, 200, 2),
        (2000, 300, 2),
    ],
)
def test_segments_are_copied_when_they_are_old_enough_or_far_enough_behind(ms: int, size: int, count: int) -> None:
    assert due(AGE, CopyLag(ms, size), now_ms=4000) == count


def test_a_segment_that_is_not_due_keeps_back_the_later_ones() -> None:
    out_of_order = [Closed(3000, 100), Closed(1000, 100)]
    assert due(out_of_order, CopyLag(2000, -1), now_ms=4000) == 0


def test_a_timestamp_in_the_future_counts_as_old_enough() -> None:
    assert due([Closed(9000, 100)], CopyLag(2000, -1), now_ms=4000) == 1


def test_segments_after_one_that_is_not_due_are_not_looked_at() -> None:
    """The largest timestamp of a segment may have to be read from the disk."""

    class Unread(Closed):
        def largest_timestamp(self) -> int:
            raise AssertionError("was read")

    assert due([Closed(1000, 100), Closed(4000, 100), Unread(1000, 100)], CopyLag(2000, -1), now_ms=4000) == 1
