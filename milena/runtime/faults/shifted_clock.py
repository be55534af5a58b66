"""A wall clock that is wrong, as after a clock jump, for nodes with ``--lab``."""

from __future__ import annotations

from collections.abc import Callable

from milena.runtime.clock import Clock, Timer


class ShiftedClock:
    """Implements ``runtime.clock.Clock``: the wall time of ``clock`` plus ``ahead_ms``; all else is unchanged."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead_ms = 0

    def time_ms(self) -> int:
        return self._clock.time_ms() + self.ahead_ms

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return self._clock.call_later(delay, callback)

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
