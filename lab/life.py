"""Whether a simulated node's process is alive: its ports fall silent when it is not."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from runtime.clock import Timer

START_MS = 1_767_225_600_000
"""Wall time at the start of every simulation: 2026-01-01."""


class Life:
    """One run of one node's process."""

    __slots__ = ("alive", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True

    def check(self) -> None:
        """Raises OSError for what a dead process still tries to do while its tasks unwind."""
        if not self.alive:
            raise OSError(errno.EIO, f"{self.name} is dead")


class SimulatedClock:
    """Implements ``runtime.clock.Clock`` on the simulated loop. ``skew_ms`` moves the wall time."""

    __slots__ = ("_life", "_loop", "skew_ms")

    def __init__(self, loop: asyncio.AbstractEventLoop, life: Life) -> None:
        self._loop = loop
        self._life = life
        self.skew_ms = 0

    def time_ms(self) -> int:
        return START_MS + self.skew_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return self._loop.call_later(max(delay, 0.0), self._call, callback)

    def _call(self, callback: Callable[[], object]) -> None:
        if self._life.alive:
            callback()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
