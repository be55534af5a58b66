"""The source applies the filters that it accepts completely, and drops no row that Spark would return."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from milena.pipeline.filters import PushedFilters

COMPARED: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda one, several: one in several,
}
numbers = st.integers(-2, 12)
comparisons = st.one_of(
    st.builds(
        lambda kind, name, value: kind((name,), value),
        st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
        st.sampled_from(["offset", "partition"]),
        numbers,
    ),
    st.builds(
        lambda name, values: In((name,), tuple(values)), st.sampled_from(["offset", "partition"]), st.lists(numbers)
    ),
)


@given(filters=st.lists(comparisons, max_size=5))
def test_accepted_and_remaining_filters_together_equal_the_given_ones(filters: list[Any]) -> None:
    pushed = PushedFilters()
    left = list(pushed.push(filters))
    assert all(any(one is other for other in filters) for one in left)
    for partition in range(10):
        for offset in range(10):
            row = {"partition": partition, "offset": offset}

            def passes(one: Any, row: dict[str, int] = row) -> bool:
                return COMPARED[type(one)](row[one.attribute[0]], one.value)

            read = pushed.wants(("t", partition)) and pushed.first <= offset
            read = read and (pushed.end is None or offset < pushed.end)
            assert (read and all(map(passes, left))) == all(map(passes, filters))


def test_unsupported_filters_are_left_to_spark() -> None:
    others = [StringStartsWith(("topic",), "a"), EqualTo(("key",), b"k"), EqualTo(("offset",), None)]
    pushed = PushedFilters()
    assert list(pushed.push(others)) == others and pushed == PushedFilters()


def test_filters_on_timestamps_are_rounded_to_whole_milliseconds() -> None:
    pushed = PushedFilters()
    time = datetime(1970, 1, 1, 0, 0, 5, 1999, UTC)
    assert list(pushed.push([GreaterThan(("timestamp",), time)])) and pushed.since == 5001
