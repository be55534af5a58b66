"""Quotas of copying and reading (docs/kafka-semantics.md: Quotas)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milena.tiered.shared.quota import RateQuota


def test_nothing_waits_below_the_limit() -> None:
    quota = RateQuota(100, windows=11, window_seconds=1)
    quota.record(100, 0)
    assert (quota.rate(0), quota.throttle_ms(0)) == (100, 0)


def test_a_large_segment_is_waited_for_until_its_bytes_are_within_the_limit() -> None:
    quota = RateQuota(100, windows=11, window_seconds=1)
    quota.record(500, 0)
    assert quota.throttle_ms(0) > 0
    assert quota.throttle_ms(4999) > 0
    assert quota.throttle_ms(5000) == 0


def test_what_is_older_than_all_windows_is_forgotten() -> None:
    quota = RateQuota(1, windows=11, window_seconds=1)
    quota.record(1_000_000, 0)
    assert quota.throttle_ms(10_999) > 0
    assert quota.rate(11_000) == 0


def test_the_limit_may_change_at_any_time() -> None:
    quota = RateQuota(1, windows=2, window_seconds=1)
    quota.record(10, 0)
    assert quota.throttle_ms(0) > 0
    quota.limit = 10
    assert quota.throttle_ms(0) == 0


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 10_000)), max_size=30))
def test_the_rate_is_what_its_windows_hold(steps: list[tuple[int, int]]) -> None:
    quota = RateQuota(1000, windows=3, window_seconds=1)
    now = 0
    windows: list[list[int]] = []
    for wait, amount in steps:
        now += wait
        windows = [window for window in windows if now - window[0] < 3000]
        if not windows or now - windows[-1][0] >= 1000:
            windows.append([now, 0])
        windows[-1][1] += amount
        quota.record(amount, now)
        expected = sum(window[1] for window in windows) * 1000 / max(now - windows[0][0], 1000)
        assert quota.rate(now) == expected
        assert (quota.throttle_ms(now) > 0) == (expected > 1000)
