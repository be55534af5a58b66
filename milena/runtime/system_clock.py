"""The real clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from milena.runtime.clock import Timer


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
