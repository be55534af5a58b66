"""Whose turn it is: connections with requests that were read and not yet begun.

One after the other works for a bounded number of units; who has more comes again when all others were there. Between
some of them the loop looks at its sockets, so that whoever asks for little is answered in between.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from milena.runtime.clock import Clock

TURN: Final = 64
"""Units of one turn where nobody else waits. A unit is about what one produce request costs."""
SHARED_TURN: Final = 16
"""Units of one turn where others wait, too."""
SLICE: Final = 128
"""Units between two looks at the sockets."""


class Taker(Protocol):
    def take_turn(self, units: int) -> int:
        """Work for about ``units``, and join again where more is to be done. Returns the units that were used."""
        ...


class Turns:
    """A queue of those who wait. Each is in it once: who joins again stays where it is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: deque[Taker] = deque()
        self._joined: set[int] = set()
        self._scheduled = False

    @property
    def share(self) -> int:
        """Units for a connection whose requests have just come."""
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
        """Who joins meanwhile waits for the next call, so that nobody has two turns in one."""
        self._scheduled = False
        left = SLICE
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
