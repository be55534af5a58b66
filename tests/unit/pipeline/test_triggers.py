"""A trigger of a stream reads as much as Spark's Kafka source would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milena.pipeline.triggers import Delay, limited, unread


class HandClock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_a_trigger_waits_for_enough_records_or_for_its_longest_delay() -> None:
    clock = HandClock()
    delay = Delay(60.0, clock)
    assert delay.is_due(0, 10), "the first trigger is not delayed"
    assert not delay.is_due(9, 10)
    assert delay.is_due(10, 10)
    clock.now += 59.0
    assert not delay.is_due(9, 10)
    clock.now += 1.0
    assert delay.is_due(9, 10)
    clock.now += 59.0
    assert not delay.is_due(9, 10), "the delay begins with the last trigger that was not delayed"


def test_offsets_that_went_back_do_not_count_as_unread() -> None:
    assert unread({("a", 0): 5, ("a", 1): 9}, {("a", 0): 8, ("a", 1): 4}) == 3


@given(left=st.dictionaries(st.integers(0, 20), st.integers(0, 1000), min_size=1), most=st.integers(1, 3000))
def test_limited_offsets_stay_in_range_and_always_make_progress(left: dict[int, int], most: int) -> None:
    starts = {("t", number): number * 10 for number in left}
    ends = {("t", number): number * 10 + count for number, count in left.items()}
    found = limited(starts, ends, most)
    assert all(starts[one] <= found[one] <= ends[one] for one in ends)
    assert sum(found[one] - starts[one] for one in ends) == min(most, sum(left.values()))
