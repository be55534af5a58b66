"""A pool that bounds concurrent work, in FIFO order; its size may change while work is running."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType

from milena.protocol.invariants import BrokenInvariant


class Pool:
    """``async with pool`` waits for a free place. ``limit`` is evaluated on each acquire and release."""

    __slots__ = ("_limit", "_waiting", "busy")

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.busy = 0
        """The number of places in use."""

    @property
    def idle_share(self) -> float:
        """The free share of the pool, 0 to 1."""
        return max(1 - self.busy / self._limit(), 0.0)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def __aenter__(self) -> None:
        if self.busy < self._limit() and not self._waiting:
            self.busy += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def _give_back(self) -> None:
        if self.busy <= 0:
            raise BrokenInvariant(f"a place of a pool is given back, {self.busy} are in use, {len(self._waiting)} wait")
        self.busy -= 1
        while self._waiting and self.busy < self._limit():
            turn = self._waiting.popleft()
            if not turn.done():
                self.busy += 1
                turn.set_result(None)
