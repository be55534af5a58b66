"""Work that is too long for one iteration of the event loop, done in slices. Jobs take turns, one slice for each
iteration.

A worker thread would not free the loop: walking through records is Python code, and a thread that runs Python makes the
loop wait for up to 5 ms at each of the loop's system calls. A slice takes about a millisecond. The jobs that run
concurrently are limited, and so is their memory; the others wait in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
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


class Place:
    """The place of one job among those that run concurrently: ``async with``."""

    def __init__(self, places: asyncio.Semaphore, turn: Callable[[], Awaitable[None]]) -> None:
        self._places = places
        self._turn = turn
        self._taken = False

    async def __aenter__(self) -> Place:
        await self._places.acquire()
        self._taken = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._taken:
            self._taken = False
            self._places.release()

    async def result(self, steps: Steps[R]) -> R:
        """Run ``steps`` to the end, one ``next`` for each turn. Raises what they raise."""
        while True:
            await self._turn()
            try:
                next(steps)
            except StopIteration as done:
                result: R = done.value
                return result

    async def wait_outside(self, event: Awaitable[None]) -> None:
        """Let others have the place until ``event``."""
        self._leave()
        await event
        await self.__aenter__()


class SlicedWork:
    """The long jobs of one node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._small = asyncio.Semaphore(AT_ONCE)
        self._large = asyncio.Semaphore(1)
        self._answers = asyncio.Semaphore(AT_ONCE)
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

    def place(self, memory: int) -> Place:
        """For a job that needs ``memory`` bytes. What it makes lives until it leaves the place, so that no job begins
        when many others are done in part."""
        return Place(self._large if memory > LARGE else self._small, self.turn)

    def place_for_answer(self) -> Place:
        """For the answer of a job that has left its place: it does not wait for jobs that have not begun."""
        return Place(self._answers, self.turn)

    async def run(self, slices: Iterator[object], memory: int) -> None:
        """Run ``slices`` to the end in a place of their own, one ``next`` for each turn. Raises what they raise."""
        async with self.place(memory):
            await self.turn()
            for _ in slices:
                await self.turn()

    async def turn(self) -> None:
        """Wait for one's turn."""
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
