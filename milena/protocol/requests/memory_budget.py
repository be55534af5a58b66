"""A bound on the bytes that all connections of a server hold together, and who has to go when it is reached.

Whoever needs room gets it from those who hold much for long without moving on: first connections that stand still,
then those that have held the most bytes for the longest time. So a newcomer with a small request does not lose
against a hoarder with a large one. Sans I/O; time comes in through ``now``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milena.protocol.invariants import BrokenInvariant

SILENCE: Final = 5.0
"""Seconds without a byte after which a connection stands still."""
PACE_WINDOW: Final = 1.0
"""Seconds over which the pace is taken. A window ends with the first byte after it."""
SLOWEST_FILL: Final = 60.0
"""Seconds. What would take longer than this, at its pace, to arrive once more stands still: a byte now and then is no
progress."""
LOOK_INTERVAL: Final = 60.0
"""Seconds in which an unfinished request has to gain LEAST_GAIN, also if there is room."""
LEAST_GAIN: Final = 16 << 10
SPARE_SHARE: Final = 16
"""Where room is made, that much of the limit (one part in so many) is taken from those that stand still, so that the
search among all is not made for each small request."""


class NoRoom(Exception):
    """The asker itself is the one that has to go."""


class MemoryBudget:
    """Bytes that all holdings of it may have together."""

    __slots__ = ("_holdings", "limit", "now", "used")

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self.limit = limit
        self.now = now
        self.used = 0
        self._holdings: dict[Holding, None] = {}

    def _make_room(self, asker: Holding, count: int) -> None:
        if asker.held + count > self.limit:
            raise NoRoom(f"more than {self.limit} bytes at once")
        now = self.now()
        for one in list(self._holdings):
            one.renew()
        wanted = self.limit - count
        for one in sorted(self._holdings, key=lambda one: one.blame(now), reverse=True):
            if self.used <= (wanted - self.limit // SPARE_SHARE if one.stands_still(now) else wanted):
                break
            if one is asker:
                if self.used <= wanted:
                    continue
                raise NoRoom(f"{self.used} of {self.limit} bytes are held, and nobody holds more for longer")
            one.evict(f"{one.held} bytes held for {now - one.since:.1f} s while others need room")


class Holding:
    """What one connection holds of a budget. ``let_go`` ends that connection; it is given the reason."""

    __slots__ = (
        "_budget", "_current", "_gone", "_last_pace", "_let_go", "_look_at", "_look_gained", "_mark_at", "_mark_gained",
        "_moved_at", "gained", "held", "since",
    )  # fmt: skip

    def __init__(
        self, budget: MemoryBudget, let_go: Callable[[str], object], current: Callable[[], int] | None = None
    ) -> None:
        """``current`` tells what is left of it, where that shrinks unseen as a peer takes it."""
        self._budget = budget
        self._let_go = let_go
        self._current = current
        self._gone = False
        self.held = 0
        self.gained = 0
        """Bytes that have moved since ``since``."""
        self.since = self._moved_at = self._mark_at = self._look_at = 0.0
        self._mark_gained = self._look_gained = 0
        self._last_pace = float("inf")

    def hold(self, count: int) -> None:
        """Hold ``count`` bytes instead of what was held. Others may have to go for it. Raises NoRoom."""
        more = count - self.held
        if not more or self._gone:
            return
        budget = self._budget
        if more > 0:
            if not self.held:
                self._begin(budget.now())
            if budget.used + more > budget.limit:
                budget._make_room(self, more)
            budget._holdings[self] = None
        if not 0 <= budget.used + more <= budget.limit or count < 0:
            raise BrokenInvariant(f"{budget.used} bytes of {budget.limit} are held, {self.held} become {count}")
        budget.used += more
        self.held = count
        if not count:
            del budget._holdings[self]

    def begins(self) -> None:
        """What is held from now on has nothing to do with what was."""
        self._begin(self._budget.now())

    def moved(self, count: int) -> None:
        """The peer has sent, or taken, ``count`` bytes of it."""
        now = self._budget.now()
        self.gained += count
        self._moved_at = now
        if now - self._mark_at >= PACE_WINDOW:
            self._last_pace = (self.gained - self._mark_gained) / (now - self._mark_at)
            self._mark_at, self._mark_gained = now, self.gained

    def renew(self) -> None:
        """Take note of what has moved unseen."""
        if self._current is not None and (left := self._current()) < self.held:
            self.moved(self.held - left)
            self.hold(left)

    def excuse(self) -> None:
        """It was us that did not read: the time to gain something begins anew."""
        self._look_at, self._look_gained = self._budget.now(), self.gained

    def overdue(self) -> bool:
        """Whether it gained too little in the last minute. To be asked from time to time."""
        now = self._budget.now()
        if not self.held or now - self._look_at < LOOK_INTERVAL:
            return False
        gained = self.gained - self._look_gained
        self._look_at, self._look_gained = now, self.gained
        return gained < LEAST_GAIN

    def stands_still(self, now: float) -> bool:
        return now - self._moved_at > SILENCE or self._last_pace * SLOWEST_FILL < self.held

    def blame(self, now: float) -> tuple[bool, float, int]:
        """Greater for who has to go sooner: who stands still, then by bytes times seconds."""
        return self.stands_still(now), self.held * (now - self.since), self.held

    def evict(self, reason: str) -> None:
        """Give back what is held, and end the connection."""
        self.close()
        self._let_go(reason)

    def close(self) -> None:
        """Give back what is held; nothing is held any more. Idempotent."""
        self.hold(0)
        self._gone = True

    def _begin(self, now: float) -> None:
        self.since = self._moved_at = self._mark_at = self._look_at = now
        self.gained = self._mark_gained = self._look_gained = 0
        self._last_pace = float("inf")
