"""Bounds what all cleaners of a node read and write in a second, like Kafka's ``Throttler``."""

from __future__ import annotations

from typing import Final

from milena.runtime.clock import Clock

LONGEST: Final = 3600.0
"""Seconds at most that are waited at once, whatever the rate."""


class Throttle:
    """Amounts are bytes."""

    def __init__(self, clock: Clock, rate: float) -> None:
        """``rate``: bytes in a second."""
        self._clock = clock
        self._free_at = 0.0
        self._rate = rate

    def change(self, rate: float) -> None:
        """Another rate, which holds at once: what was done at the former one may take an hour there."""
        if rate != self._rate:
            self._rate, self._free_at = rate, 0.0

    def delay(self, amount: int) -> float:
        """Seconds to wait for ``amount``, which was just done."""
        now = self._clock.monotonic()
        lasts = amount / self._rate if self._rate > 0 else LONGEST
        self._free_at = min(max(self._free_at, now) + lasts, now + LONGEST)
        return self._free_at - now
