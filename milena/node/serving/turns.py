"""Fair scheduling of connections whose requests were read from the socket and not started yet.

Connections take turns. A turn is a bounded number of units of work; a connection with more work joins the queue again
at its end. Every few turns the loop polls its sockets, so that connections with little work are served in between.
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


class TurnTaker(Protocol):
    """A connection in the queue."""

    def take_turn(self, units: int) -> int:
        """Use up about ``units`` of work, and join the queue again if work remains. Returns the units used."""
        ...


class Turns:
    """The queue of waiting connections."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: deque[TurnTaker] = deque()
        self._joined: set[int] = set()
        self._scheduled = False

    @property
    def share(self) -> int:
        """Units for a connection whose requests have just arrived."""
        return SHARED_TURN if self._queue else TURN

    def join(self, taker: TurnTaker) -> None:
        """Add a connection to the end of the queue; does nothing if it is in the queue already."""
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
        """Give each connection in the queue one turn, until UNITS_PER_POLL are used. A connection that joins during
        this call waits for the next call, so that none gets two turns."""
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
