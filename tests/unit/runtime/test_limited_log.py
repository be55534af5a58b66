"""What clients cause as often as they like is said a few times, on one line each."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from milena.runtime.limited_log import BURST, INTERVAL, KINDS, LimitedLog
from milena.runtime.logging import get_logger
from milena.runtime.printable import LONGEST, printable, shortened


class Site:
    def __init__(self) -> None:
        self.now = 0.0
        self.log = LimitedLog(get_logger("x"), lambda: self.now)


def test_a_burst_is_said_and_the_rest_counted() -> None:
    site = Site()
    with capture_logs() as lines:
        for number in range(1000):
            site.log.warning("refused", id=number)
        site.log.info("something else")
        site.now += INTERVAL
        site.log.warning("refused", id=1000)
        site.log.warning("refused", id=1001)
    assert [line["id"] for line in lines if line["event"] == "refused"] == [*range(BURST), 1000, 1001]
    assert [line["left_out"] for line in lines if "left_out" in line] == [1000 - BURST]
    assert "something else" in [line["event"] for line in lines]


def test_kinds_of_one_event_are_counted_apart_and_their_number_is_bounded() -> None:
    site = Site()
    with capture_logs() as lines:
        for number in range(3 * KINDS):
            site.log.error("request failed", kind=str(number))
            site.log.error("request failed", kind="first")
    assert len(lines) == BURST + (KINDS - 1) + BURST


def test_strings_of_clients_are_cut_and_escaped() -> None:
    site = Site()
    with capture_logs() as lines:
        site.log.warning("refused", id="a\nb\x1b[31m" + "x" * 1000, count=3)
    assert lines[0]["id"].startswith("a\\nb\\x1b[31mxxx")
    assert len(lines[0]["id"]) < LONGEST + 50
    assert lines[0]["count"] == 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ümläut", "plain ümläut"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\u202egnp", "\\u202egnp"),
        ("\ud800", "\\ud800"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_what_is_long_says_how_long_it_was() -> None:
    assert shortened("x" * 10, 4) == "xxxx... (6 more)"
    assert shortened("x" * 4, 4) == "xxxx"
