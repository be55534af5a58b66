"""A rate of events per second over about a minute, like Kafka's one-minute rates."""

from __future__ import annotations

import math
from typing import Final

from milena.runtime.clock import Clock

WINDOW: Final = 60.0
"""Seconds after which an event counts 1/e of a new one."""


class Rate:
    """Callers add to ``count``, or set it; the mean is updated when it is read."""

    __slots__ = ("_clock", "_counted", "_rate", "_since", "count")

    def __init__(self, clock: Clock) -> None:
        self.count = 0.0
        self._clock = clock
        self._since = clock.monotonic()
        self._counted = 0.0
        self._rate: float | None = None

    def per_second(self) -> float:
        """The exponentially weighted mean of the rates between calls."""
        now = self._clock.monotonic()
        elapsed = now - self._since
        if elapsed > 0:
            current = (self.count - self._counted) / elapsed
            weight = 1.0 if self._rate is None else 1 - math.exp(-elapsed / WINDOW)
            before = 0.0 if self._rate is None else self._rate
            self._rate = before + weight * (current - before)
            self._since, self._counted = now, self.count
        return self._rate or 0.0
