"""The clock port: wall time, monotonic time and timers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A pending call that can be cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time as a node sees it. In the simulation all of it is virtual."""

    def time_ms(self) -> int:
        """Wall time in milliseconds since 1970, as record timestamps have it."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        ...

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback`` once on the loop after ``delay`` seconds."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """Implements ``runtime.clock.Clock`` with the machine's clocks and the running loop's timers."""

    __slots__ = ()

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
