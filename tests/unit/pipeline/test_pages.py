"""Pages of jobs: gaps, colours, and what is not in the tier."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.pipeline.jobs.units_text import remaining_text
from milena.report.colours import GREY, SHADES, colours_of, lasting_colours
from milena.report.gaps import with_gaps

MINUTE = timedelta(minutes=1)
BEGIN = datetime(2026, 11, 1)


def test_minutes_without_records_are_a_gap_and_not_a_slow_decline() -> None:
    times = [BEGIN, BEGIN + MINUTE, BEGIN + 5 * MINUTE, BEGIN + 6 * MINUTE]
    xs, ys = with_gaps(times, [3.0, 2.0, 1.0, 4.0], MINUTE)
    assert ys == [3.0, 2.0, None, 1.0, 4.0]
    assert xs == sorted(xs) and xs[2] == BEGIN + 2 * MINUTE
    assert with_gaps(times[:2], [3.0, 2.0], MINUTE) == (times[:2], [3.0, 2.0])
    assert with_gaps([], [], MINUTE) == ([], [])


@given(st.sets(st.text("abc-", min_size=1, max_size=6), max_size=2 * len(SHADES)))
def test_topics_have_the_same_colours_on_all_pages_and_different_ones_on_a_page(names: set[str]) -> None:
    colours = lasting_colours(names)
    assert colours == lasting_colours(sorted(names, reverse=True))
    assert len(set(colours.values())) == min(len(names), len(SHADES))
    assert colours_of(names, [*names]) == colours


def test_a_topic_has_its_own_colour_also_on_a_page_with_fewer_topics() -> None:
    every = lasting_colours(["orders", "clicks", "payments"])
    assert lasting_colours(["orders"]) == {"orders": every["orders"]}


def test_series_that_are_no_topics_have_the_colours_of_their_order() -> None:
    found = colours_of(["b", "a", "b", "others"])
    assert found == {"b": "#1f77b4", "a": "#ff7f0e", "others": GREY}


@pytest.mark.parametrize(
    ("not_in_tier", "sentence"),
    [
        (None, "unknown without a broker's directory: only records in the tier were read"),
        ({"orders": 0}, "nothing"),
        (
            {"clicks": 5, "new": 0, "orders": 1200},
            "the newest 1,205 offsets, which only the brokers have: orders 1,200",
        ),
        (dict.fromkeys("abcdefg", 1), "the newest 7 offsets, .*: a 1, b 1, c 1, d 1, e 1, and 2 more topics"),
    ],
)
def test_pages_say_what_is_not_in_the_tier(not_in_tier: dict[str, int] | None, sentence: str) -> None:
    assert re.match(sentence, remaining_text(not_in_tier))
