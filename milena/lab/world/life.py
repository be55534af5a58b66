"""Whether a simulated node's process is alive: the ports of an ended process do nothing."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from milena.runtime.clock import Timer

START_MS = 1_767_225_600_000
"""Wall time at the start of every simulation: 2026-01-01."""


class Life:
    """One process of a node, from its start to its end."""

    __slots__ = ("_waiting", "alive", "name", "paused")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        """Whether it is stopped, as by SIGSTOP."""
        self._waiting: list[Callable[[], object]] = []

    def later(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when the process continues after a pause."""
        self._waiting.append(callback)

    def resume(self) -> None:
        """Run everything that became due during the pause, in order."""
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    async def wait_resumed(self) -> None:
        """Wait while the process is paused."""
        while self.paused:
            resumed = asyncio.Event()
            self.later(resumed.set)
            await resumed.wait()

    def check(self) -> None:
        """Raise OSError if the process has ended; its tasks may still be unwinding."""
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
        if self._life.paused:
            self._life.later(lambda: self._call(callback))
        elif self._life.alive:
            callback()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._life.paused:
            await self._life.wait_resumed()
