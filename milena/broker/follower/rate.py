"""Events for each second over about a minute, as Kafka's meters show them."""

from __future__ import annotations

import math
from typing import Final

from milena.runtime.clock import Clock

WINDOW: Final = 60.0


class Rate:
    """Count by adding to ``count``; the mean is updated when it is read."""

    __slots__ = ("_clock", "_rate", "_seen", "_since", "count")

    def __init__(self, clock: Clock) -> None:
        self.count = 0
        self._clock = clock
        self._since = clock.monotonic()
        self._seen = 0
        self._rate: float | None = None

    def per_second(self) -> float:
        """An exponentially weighted mean over the times since it was last asked for."""
        now = self._clock.monotonic()
        elapsed = now - self._since
        if elapsed > 0:
            current = (self.count - self._seen) / elapsed
            weight = 1.0 if self._rate is None else 1 - math.exp(-elapsed / WINDOW)
            before = 0.0 if self._rate is None else self._rate
            self._rate = before + weight * (current - before)
            self._since, self._seen = now, self.count
        return self._rate or 0.0
