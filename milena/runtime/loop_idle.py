"""An event loop that measures how long it waits: the time in which it had nothing to do."""

from __future__ import annotations

import asyncio
import selectors
from time import monotonic


class IdleSelector(selectors.DefaultSelector):
    """asyncio's usual selector, which adds up the seconds that it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        began = monotonic()
        found = super().select(timeout)
        self.seconds += monotonic() - began
        return found


class MeasuredLoop(asyncio.SelectorEventLoop):
    """asyncio's usual loop on Unix, with an IdleSelector."""

    def __init__(self) -> None:
        self._idle = IdleSelector()
        self._began = monotonic()
        super().__init__(self._idle)

    def idle_seconds(self) -> float:
        """The seconds that the loop has waited since its start."""
        return self._idle.seconds

    def idle_share(self) -> float:
        """The share of the time since the start of the loop in which it waited, 0 to 1."""
        elapsed = monotonic() - self._began
        return self._idle.seconds / elapsed if elapsed > 0 else 1.0
