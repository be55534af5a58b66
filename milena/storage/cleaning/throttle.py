"""Limits the bytes per second that all cleaners of a node read and write, like Kafka's ``Throttler``."""

from __future__ import annotations

from typing import Final

from milena.runtime.clock import Clock

LONGEST: Final = 3600.0
"""The longest delay (seconds) at any rate."""


class Throttle:
    """Amounts are bytes."""

    def __init__(self, clock: Clock, rate: float) -> None:
        """``rate``: bytes per second."""
        self._clock = clock
        self._free_at = 0.0
        self._rate = rate

    def change(self, rate: float) -> None:
        """Set the rate. The delay that is due by the former rate, up to an hour, is dropped."""
        if rate != self._rate:
            self._rate, self._free_at = rate, 0.0

    def delay(self, amount: int) -> float:
        """Return how long (seconds) to wait after ``amount`` bytes."""
        now = self._clock.monotonic()
        lasts = amount / self._rate if self._rate > 0 else LONGEST
        self._free_at = min(max(self._free_at, now) + lasts, now + LONGEST)
        return self._free_at - now
