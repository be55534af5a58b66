"""The checker reports each anomaly of the keys of a compacted topic, and nothing in valid histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milena.lab.histories.checker import check
from milena.lab.histories.events import Event, Void, from_line, to_line
from milena.lab.histories.group_events import RequestOutcome
from milena.lab.histories.keyed import FullRead, KeyedRules, KeyedWrite

P = ("keyed", 0)
OK, UNKNOWN, FAILED = RequestOutcome.OK, RequestOutcome.UNKNOWN, RequestOutcome.FAILED


def wrote(value: str | None, offset: int, outcome: RequestOutcome = OK, key: str = "k") -> KeyedWrite:
    """A write at the time equal to its offset; a write of unknown offset lasts from 50 to 60."""
    begun = offset if offset >= 0 else 50
    return KeyedWrite(P, key, value, begun, begun + (1 if offset >= 0 else 10), outcome, offset)


def read(*found: tuple[str, int, str | None], upto: int = 100, lasts: float = 1, final: bool = False) -> FullRead:
    return FullRead(P, 100, 100 + lasts, upto, found, tombstones_stay=8, final=final)


MAYBE = wrote("maybe", -1, UNKNOWN)
EARLIER = FullRead(P, 70, 80, 90, (("k", 20, "maybe"),), tombstones_stay=8)
SAW_GONE = FullRead(P, 70, 80, 90, (("k", 20, None),), tombstones_stay=8)
OLD, NEW, GONE = wrote("old", 3), wrote("new", 7), wrote(None, 9)
UNTOLD, UNTOLD_GONE = wrote("untold", -1), wrote(None, -1)


@pytest.mark.parametrize(
    ("name", "history"),
    [
        ("older value", [OLD, NEW, read(("k", 3, "old"))]),
        ("older value", [OLD, NEW, read(("k", 3, "old"), upto=5, final=True)]),
        ("lost value", [OLD, NEW, read()]),
        ("lost value", [GONE, wrote("again", 12), read(("k", 9, None))]),
        ("lost value", [OLD, wrote(None, -1, FAILED), read()]),
        ("deleted key is back", [OLD, GONE, read(("k", 3, "old"))]),
        ("value from nowhere", [OLD, read(("k", 5, "other"))]),
        ("value from nowhere", [OLD, wrote("no", -1, FAILED), read(("k", 5, "no"))]),
        ("value from nowhere", [read(("j", 5, "other"))]),
        ("older value", [OLD, NEW, Void(P, 2.0, "before"), read(("k", 3, "old"))]),
        ("older value", [OLD, MAYBE, EARLIER, read(("k", 3, "old"), final=True)]),
        ("lost value", [MAYBE, EARLIER, read(final=True)]),
        ("deleted key is back", [OLD, wrote(None, -1, UNKNOWN), SAW_GONE, read(("k", 3, "old"), final=True)]),
        ("older value", [OLD, NEW, Void(P, 20.0, "a fault", kept=8), read(("k", 3, "old"))]),
        ("duplicate", [OLD, read(("k", 4, "old"))]),
        ("duplicate", [MAYBE, EARLIER, read(("k", 21, "maybe"))]),
        ("duplicate", [OLD, NEW, replace(read(("k", 7, "new")), replaced=(("k", 4, "old"),))]),
        ("duplicate", [MAYBE, replace(read(("k", 30, "maybe")), replaced=(("k", 20, "maybe"),))]),
        ("duplicate", [GONE, read(("k", 10, None))]),
        ("value from nowhere", [OLD, NEW, replace(read(("k", 7, "new")), replaced=(("k", 5, "other"),))]),
        ("older value", [OLD, MAYBE, EARLIER, read(("k", 3, "old"))]),
        ("older value", [OLD, UNTOLD, read(("k", 3, "old"), final=True)]),
        ("older value", [OLD, UNTOLD, replace(EARLIER, found=(("k", 20, "untold"),)), read(("k", 3, "old"))]),
        ("lost value", [UNTOLD, read(final=True)]),
        ("lost value", [GONE, UNTOLD, read(("k", 9, None), final=True)]),
        ("deleted key is back", [OLD, UNTOLD_GONE, read(("k", 3, "old"), final=True)]),
        ("inconsistent offsets", [OLD, wrote("other", 3, key="j"), wrote("again", 8, key="j"), NEW]),
        ("inconsistent offsets", [NEW, read(("k", 7, "new"), ("j", 7, "maybe")), replace(MAYBE, key="j")]),
        ("non-monotonic send", [replace(OLD, offset=8), NEW, GONE]),
        ("non-monotonic send", [replace(OLD, offset=8, key="j"), NEW]),
        ("duplicate", [wrote(None, -1, UNKNOWN), replace(read(("k", 12, None)), replaced=(("k", 11, None),))]),
    ],
)
def test_a_planted_anomaly_is_found(name: str, history: list[Event]) -> None:
    assert [found.anomaly.value for found in check(history)] == [name]
    assert check(from_line(to_line(event)) for event in history) == check(history)


@pytest.mark.parametrize(
    "history",
    [
        [OLD, NEW, read(("k", 7, "new"))],
        [OLD, NEW, read(("k", 3, "old"), upto=5)],
        [OLD, NEW, wrote("later", 100), read(("k", 3, "old"), lasts=2)],
        [OLD, GONE, read()],
        [OLD, MAYBE, EARLIER, read(("k", 20, "maybe"), final=True)],
        [OLD, MAYBE, EARLIER, wrote("later", -1, UNKNOWN), read(("k", 3, "old"))],
        [OLD, UNTOLD, read(("k", 3, "old"))],
        [wrote("maybe", -1, UNKNOWN), UNTOLD, read(("k", 70, "maybe"), final=True)],
        [UNTOLD, wrote(None, -1, UNKNOWN), read(final=True)],
        [UNTOLD, replace(UNTOLD_GONE, begun=70), read(final=True)],
        [OLD, UNTOLD, wrote("last", 90), read(("k", 90, "last"), final=True)],
        [OLD, UNTOLD, Void(P, 70.0, "a fault"), read(("k", 3, "old"), final=True)],
        [OLD, UNTOLD_GONE, read(("k", 3, "old"), lasts=9, final=True)],
        [OLD, wrote("other", 3, key="j"), Void(P, 20.0, "a fault")],
        [OLD, replace(NEW, begun=2)],
        [OLD, MAYBE, EARLIER, read(("k", 3, "old"), upto=15, final=True)],
        [OLD, MAYBE, EARLIER, wrote(None, -1, UNKNOWN), read(final=True)],
        [OLD, wrote(None, -1, UNKNOWN), SAW_GONE, read(final=True)],
        [OLD, wrote(None, -1, UNKNOWN), SAW_GONE, read(("k", 3, "old"), lasts=9, final=True)],
        [OLD, GONE, read(("k", 9, None), final=True)],
        [OLD, GONE, read(("k", 3, "old"), lasts=9)],
        [OLD, wrote("maybe", -1, UNKNOWN), read(("k", 20, "maybe"))],
        [OLD, wrote("maybe", -1, UNKNOWN), read(("k", 3, "old"))],
        [OLD, wrote(None, -1, UNKNOWN), read()],
        [OLD, NEW, Void(P, 20.0, "a fault", kept=4), read()],
        [OLD, Void(P, 20.0, "a fault"), read(("k", 4, "old"))],
        [OLD, NEW, replace(read(("k", 7, "new")), replaced=(("k", 3, "old"),))],
        [replace(OLD, once=False), read(("k", 4, "old"))],
        [GONE, wrote(None, -1, UNKNOWN), read(("k", 12, None))],
        [replace(GONE, once=False), read(("k", 10, None))],
        [OLD, NEW, Void(P, 20.0, "a fault", kept=4), read(("k", 3, "old"), final=True)],
    ],
)
def test_a_history_that_kafka_allows_has_no_violations(history: list[Event]) -> None:
    assert check(history) == []


@pytest.mark.slow
def test_many_reads_of_many_keys_are_judged_in_one_pass() -> None:
    """A checker that compared each read with each other one, or with each write, would run into the time limit."""
    rules, keys = KeyedRules(), [f"k{number}" for number in range(100)]
    for at in range(1000):
        for number, key in enumerate(keys):
            offset = at * 100 + number
            rules.wrote(KeyedWrite(P, key, f"v{offset}", at, at + 0.5, OK, offset))
        found = tuple((key, at * 100 + number, f"v{at * 100 + number}") for number, key in enumerate(keys))
        rules.read(FullRead(P, at + 0.6, at + 0.8, at * 100 + 100, found))
    assert list(rules.violations()) == []
