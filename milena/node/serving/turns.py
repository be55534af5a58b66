"""Scheduling of connections with requests that were read and not yet started.

Connections take turns of a bounded number of units; one with more work queues again behind the others. Every few turns
the loop polls its sockets, so that connections with little work are answered in between.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from milena.runtime.clock import Clock

TURN: Final = 64
"""Units of one turn if no other connection waits. A unit is about the cost of one produce request."""
SHARED_TURN: Final = 16
"""Units of one turn if other connections wait, too."""
UNITS_PER_POLL: Final = 128
"""Units between two polls of the sockets."""


class Taker(Protocol):
    def take_turn(self, units: int) -> int:
        """Work for about ``units``, and join again if more is to be done. Returns the units used."""
        ...


class Turns:
    """A queue of waiting connections. Each is in it once: joining again does not change its place."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: deque[Taker] = deque()
        self._joined: set[int] = set()
        self._scheduled = False

    @property
    def share(self) -> int:
        """Units for a connection whose requests have just arrived."""
        return SHARED_TURN if self._queue else TURN

    def join(self, taker: Taker) -> None:
        if id(taker) in self._joined:
            return
        self._joined.add(id(taker))
        self._queue.append(taker)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.call_later(0, self._run)

    def _run(self) -> None:
        """A connection that joins meanwhile waits for the next call, so that it does not get two turns in one."""
        self._scheduled = False
        left = UNITS_PER_POLL
        queue = self._queue
        try:
            for _ in range(len(queue)):
                taker = queue.popleft()
                self._joined.discard(id(taker))
                left -= taker.take_turn(self.share)
                if left <= 0:
                    break
        finally:
            if queue:
                self._schedule()
