"""Work that is too long for one iteration of the event loop, done in slices. Jobs take turns, one slice for each
iteration.

A worker thread would not free the loop: walking through records is Python code, and a thread that runs Python makes the
loop wait for up to 5 ms at each of the loop's system calls. A slice takes about a millisecond. The jobs that run
concurrently are limited, and so is their memory; the others wait in order.
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
"""Jobs that need more memory (bytes) run one at a time."""
DECODED: Final = 16
"""Bytes that a decoded request takes in memory, for each of its bytes."""
MAX_HELD: Final = 256 << 20
"""Bytes of requests that may wait for their jobs or be in progress. A first request is always admitted."""


class SlicedWork:
    """The long jobs of one node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._small = asyncio.Semaphore(AT_ONCE)
        self._large = asyncio.Semaphore(1)
        self._turns: deque[asyncio.Future[None]] = deque()
        self._armed = False
        self.held = 0
        """Bytes of all requests that ``hold`` has counted."""

    def hold(self, size: int) -> bool:
        """Count ``size`` more bytes of a request. Returns False if there are too many already. ``drop`` gives them
        back."""
        if self.held and self.held + size > MAX_HELD:
            return False
        self.held += size
        return True

    def drop(self, size: int) -> None:
        self.held -= size

    async def run(self, slices: Iterator[object], memory: int) -> None:
        """Run ``slices`` to the end, one ``next`` for each turn, with ``memory`` bytes in use. Raises what they
        raise."""
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
