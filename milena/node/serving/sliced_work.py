"""Work that is too long for one go of the loop, done in slices: one slice a go, and whoever works takes turns.

A worker thread would not free the loop: going through records is Python, and a thread that runs Python lets the loop
wait for up to 5 ms at each of its system calls. A slice is about a millisecond. What is worked on at one time is
bounded, so that its memory is; the rest waits in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final, TypeVar

from milena.protocol.schemas.steps import Steps
from milena.runtime.clock import Clock

R = TypeVar("R")

AT_ONCE: Final = 8
LARGE: Final = 16 << 20
"""Work that needs more memory (bytes) goes one by one."""
DECODED: Final = 16
"""Bytes that a decoded request takes in memory, for each of its bytes."""
MAX_HELD: Final = 256 << 20
"""Bytes of requests that may wait for their work or be under way, beside the first."""


class SlicedWork:
    """The long work of one node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._small = asyncio.Semaphore(AT_ONCE)
        self._large = asyncio.Semaphore(1)
        self._turns: deque[asyncio.Future[None]] = deque()
        self._armed = False
        self.held = 0
        """Bytes of all requests that ``hold`` has counted."""

    def hold(self, size: int) -> bool:
        """Count ``size`` more bytes of a request; False if there are too many already. ``drop`` gives them back."""
        if self.held and self.held + size > MAX_HELD:
            return False
        self.held += size
        return True

    def drop(self, size: int) -> None:
        self.held -= size

    async def run(self, slices: Iterator[object], memory: int) -> None:
        """Run ``slices`` to the end, one for each ``next``, with ``memory`` bytes in use. Raises what they do."""
        async with self._large if memory > LARGE else self._small:
            await self._turn()
            for _ in slices:
                await self._turn()

    async def result(self, steps: Steps[R], memory: int) -> R:
        """As ``run``; returns what ``steps`` does."""
        results: list[R] = []

        def slices() -> Iterator[None]:
            results.append((yield from steps))

        await self.run(slices(), memory)
        return results[0]

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        self._arm()
        await turn

    def _arm(self) -> None:
        if not self._armed and self._turns:
            self._armed = True
            self._clock.call_later(0, self._next)

    def _next(self) -> None:
        self._armed = False
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        self._arm()
