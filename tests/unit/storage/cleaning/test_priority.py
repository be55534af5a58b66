"""When compaction gets the broker's own priority."""

from __future__ import annotations

import pytest

from milena.storage.cleaning.priority import JUDGED_AFTER, LEAST_RATE, URGENT_AFTER, Progress, Starved, Urgency
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


def test_a_worker_starves_that_makes_little_progress_for_some_time() -> None:
    clock = HandClock()
    slow, fast, throttled = Progress(clock), Progress(clock), Progress(clock)
    clock.now += JUDGED_AFTER
    for progress in (slow, throttled):
        progress.add(1)
    fast.add(int((JUDGED_AFTER + 1) * LEAST_RATE))
    clock.now += 1
    fast.add(0)
    throttled.paused(2)
    throttled.add(1)
    with pytest.raises(Starved, match="2 bytes in 31 s"):
        slow.add(1)
