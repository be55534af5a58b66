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
"""Maximum bytes of requests whose jobs wait or run; a request is admitted anyway if there is no other."""


class Slot:
    """The right to run one job; ``async with`` waits for it."""

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
    """Runs the cooperative jobs of one role of a node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._small = asyncio.Semaphore(MAX_CONCURRENT_JOBS)
        self._large = asyncio.Semaphore(1)
        self._answers = asyncio.Semaphore(MAX_CONCURRENT_ANSWERS)
        self._turns: deque[asyncio.Future[None]] = deque()
        self._scheduled = False
        self.reserved = 0
        """Bytes of requests that are reserved and not released."""

    def reserve(self, size: int) -> bool:
        """Reserve ``size`` bytes for a request. Returns False if that would exceed the limit."""
        if self.reserved and self.reserved + size > MAX_RESERVED_BYTES:
            return False
        self.reserved += size
        return True

    def release(self, size: int) -> None:
        """Release bytes that ``reserve`` has reserved."""
        self.reserved -= size

    def slot(self, memory: int) -> Slot:
        """Return a slot for a job that needs ``memory`` bytes. A job keeps its slot until its results have been sent or
        dropped, which bounds the memory of all jobs."""
        return Slot(self._large if memory > LARGE_JOB_BYTES else self._small, self.turn)

    def answer_slot(self) -> Slot:
        """Return a slot for encoding the answer of a request that had to wait (a delayed operation). These slots are
        separate, so that such an answer does not wait for new jobs."""
        return Slot(self._answers, self.turn)

    async def turn(self) -> None:
        """Wait for the next turn. Each iteration of the loop grants one turn, in the order of the calls."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        self._schedule()
        await turn

    def _schedule(self) -> None:
        if not self._scheduled and self._turns:
            self._scheduled = True
            self._clock.call_later(0, self._next)

    def _next(self) -> None:
        self._scheduled = False
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        self._schedule()
