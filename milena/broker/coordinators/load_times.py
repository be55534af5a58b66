"""Meters of loading, with Kafka's metric names."""

from __future__ import annotations

from collections import deque
from typing import Final

from milena.runtime.clock import Clock

_WINDOW: Final = 30.0
"""Seconds."""


class LoadTimes:
    """The durations of loads that ended in the last 30 seconds (Kafka's CoordinatorRuntimeMetrics and
    transaction-coordinator-metrics)."""

    __slots__ = ("_clock", "_loads")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loads: deque[tuple[float, float]] = deque()
        """When each load ended, in monotonic seconds, and its milliseconds."""

    def loaded(self, began: float) -> None:
        """Note a load that ends now. ``began``: monotonic seconds."""
        now = self._clock.monotonic()
        self._forget(now)
        self._loads.append((now, 1000 * (now - began)))

    def average_ms(self) -> float:
        recent = self._recent()
        return sum(recent) / len(recent) if recent else 0.0

    def longest_ms(self) -> float:
        return max(self._recent(), default=0.0)

    def _recent(self) -> list[float]:
        self._forget(self._clock.monotonic())
        return [milliseconds for _, milliseconds in self._loads]

    def _forget(self, now: float) -> None:
        while self._loads and now - self._loads[0][0] > _WINDOW:
            self._loads.popleft()
