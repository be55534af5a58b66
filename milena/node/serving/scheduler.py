"""Runs cooperative work (``protocol.cooperative``) on the event loop: one step of one job in each iteration.

A worker thread would not free the loop: most of this work is Python code, and a thread that runs Python makes the
loop wait for up to 5 ms at each of the loop's system calls. Jobs take turns. The number that runs concurrently is
limited, and so is the memory of all of them; the others wait in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from milena.protocol.cooperative import Cooperative
from milena.runtime.clock import Clock

R = TypeVar("R")

MAX_CONCURRENT_JOBS: Final = 8
MAX_CONCURRENT_ANSWERS: Final = 8
LARGE_JOB_BYTES: Final = 16 << 20
"""Jobs that need more memory than this run one at a time."""
MAX_RESERVED_BYTES: Final = 256 << 20
"""Bytes of requests whose jobs wait or run. A first request is always admitted."""


class Slot:
    """One of the concurrent jobs: ``async with``."""

    def __init__(self, slots: asyncio.Semaphore, turn: Callable[[], Awaitable[None]]) -> None:
        self._slots = slots
        self._turn = turn

    async def __aenter__(self) -> Slot:
        await self._slots.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._slots.release()

    async def run(self, work: Cooperative[R]) -> R:
        """Run ``work`` to its end, one step for each turn. Returns its result, raises what it raises."""
        while True:
            await self._turn()
            try:
                next(work)
            except StopIteration as done:
                result: R = done.value
                return result


class Scheduler:
    """The long jobs of one node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._small = asyncio.Semaphore(MAX_CONCURRENT_JOBS)
        self._large = asyncio.Semaphore(1)
        self._answers = asyncio.Semaphore(MAX_CONCURRENT_ANSWERS)
        self._turns: deque[asyncio.Future[None]] = deque()
        self._armed = False
        self.reserved = 0
        """Bytes of all requests that ``reserve`` has counted."""

    def reserve(self, size: int) -> bool:
        """Count ``size`` more bytes of requests. Returns False if there are too many already."""
        if self.reserved and self.reserved + size > MAX_RESERVED_BYTES:
            return False
        self.reserved += size
        return True

    def release(self, size: int) -> None:
        """Give back bytes that were reserved."""
        self.reserved -= size

    def slot(self, memory: int) -> Slot:
        """A slot for a job that needs ``memory`` bytes. Its results live until it leaves the slot, so that no job
        begins while many others are half done."""
        return Slot(self._large if memory > LARGE_JOB_BYTES else self._small, self.turn)

    def answer_slot(self) -> Slot:
        """A slot for the answer of a job that has left its own: it does not wait for jobs that have not begun."""
        return Slot(self._answers, self.turn)

    async def turn(self) -> None:
        """Wait for the next turn: one is given in each iteration of the loop, in the order of the calls."""
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
