"""When compaction gets the broker's own priority."""

from __future__ import annotations

from functools import partial

import pytest

from milena.storage.cleaning.priority import JUDGED_AFTER, LEAST_SHARE, URGENT_AFTER, Progress, Starved, Urgency
from tests.unit.broker.hand_clock import HandClock


def test_a_log_that_was_due_for_too_long_is_urgent_until_it_is_cleaned() -> None:
    clock = HandClock()
    urgency: Urgency[str] = Urgency(clock)
    urgency.note("log", is_due=True)
    clock.now += URGENT_AFTER
    urgency.note("log", is_due=True)
    assert not urgency.is_urgent("log", 0) and not urgency.is_urgent("other", 0)
    clock.now += 1
    assert urgency.is_urgent("log", 0) and urgency.logs == ["log"]
    urgency.forget("log")
    assert not urgency.is_urgent("log", 0)


def test_a_log_that_is_due_no_more_is_not_urgent() -> None:
    clock = HandClock()
    urgency: Urgency[str] = Urgency(clock)
    urgency.note("log", is_due=True)
    clock.now += URGENT_AFTER + 1
    urgency.note("log", is_due=False)
    urgency.note("log", is_due=True)
    assert not urgency.is_urgent("log", 0)


def test_a_log_far_beyond_its_compaction_lag_is_urgent_at_once() -> None:
    urgency: Urgency[str] = Urgency(HandClock())
    assert urgency.is_urgent("log", int(URGENT_AFTER * 1000) + 1)
    assert not urgency.is_urgent("log", int(URGENT_AFTER * 1000))


def test_a_log_whose_worker_starved_is_urgent() -> None:
    urgency: Urgency[str] = Urgency(HandClock())
    urgency.note_starved("log")
    assert urgency.is_urgent("log", 0)
    urgency.forget("log")
    assert not urgency.is_urgent("log", 0)


def test_a_worker_starves_that_gets_little_cpu_time_for_a_while() -> None:
    clock = HandClock()
    used = {"slow": 7.0, "fast": 7.0, "throttled": 7.0}
    slow, fast, throttled = (Progress(clock, partial(used.get, name)) for name in used)
    clock.now += JUDGED_AFTER
    for progress in (slow, throttled):
        progress.check()
    used["slow"] += 1.5
    used["fast"] += (JUDGED_AFTER + 1) * LEAST_SHARE
    clock.now += 1
    fast.check()
    throttled.paused(2)
    throttled.check()
    with pytest.raises(Starved, match=r"1\.5 s of CPU in 31 s"):
        slow.check()


def test_a_worker_that_does_not_report_its_cpu_time_is_not_judged() -> None:
    clock = HandClock()
    progress = Progress(clock, lambda: None)
    clock.now += 10 * JUDGED_AFTER
    progress.check()
