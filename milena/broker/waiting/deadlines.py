"""Deadlines of many delayed operations on one timer of the clock.

Nearly every waiting fetch and acks=all produce completes before its deadline, so a loop timer for each would nearly
always be cancelled. Here a delayed operation costs one heap entry, and one timer is set for the earliest deadline.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from milena.runtime.clock import Clock, Timer

_COMPACT_ABOVE = 64
"""Cancelled entries that the heap may have, even if they are the majority."""
CALLBACKS_PER_ITERATION = 64
"""The maximum number of callbacks in one iteration of the loop; the others run in later ones."""


class Deadline:
    """One pending deadline."""

    __slots__ = ("_owner", "callback", "when")

    def __init__(self, owner: Deadlines, when: float, callback: Callable[[], object]) -> None:
        self._owner = owner
        self.when = when
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Prevent the callback, if it has not run. The heap entry is removed later."""
        if self.callback is not None:
            self.callback = None
            self._owner.note_cancelled()


class Deadlines:
    """A heap of deadlines. Callbacks run on the loop, in the order of their times, then of creation."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Deadline]] = []
        self._serial = 0
        self._cancelled = 0
        self._timer: Timer | None = None
        self._armed_for = 0.0

    def __len__(self) -> int:
        """The number of pending deadlines."""
        return len(self._heap) - self._cancelled

    def after(self, seconds: float, callback: Callable[[], object]) -> Deadline:
        """Call ``callback`` once after ``seconds``, unless the deadline is cancelled."""
        deadline = Deadline(self, self._clock.monotonic() + seconds, callback)
        self._serial += 1
        heapq.heappush(self._heap, (deadline.when, self._serial, deadline))
        if self._timer is None or deadline.when < self._armed_for:
            self._arm()
        return deadline

    def note_cancelled(self) -> None:
        """Count a cancelled deadline, and remove all cancelled entries once they are the majority."""
        self._cancelled += 1
        if self._cancelled > _COMPACT_ABOVE and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        """Drop all deadlines without calling their callbacks."""
        self._heap.clear()
        self._cancelled = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm_again(self) -> None:
        """Set the timer after the callbacks, unless one of them has set it."""
        if self._heap and self._timer is None:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = self._heap[0][0]
        self._timer = self._clock.call_later(max(0.0, self._armed_for - self._clock.monotonic()), self._fired)

    def _fired(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        budget = CALLBACKS_PER_ITERATION
        try:
            while budget and self._heap and (self._heap[0][0] <= now or self._heap[0][2].callback is None):
                deadline = heapq.heappop(self._heap)[2]
                callback = deadline.callback
                if callback is None:
                    self._cancelled -= 1
                    continue
                deadline.callback = None
                budget -= 1
                callback()
        finally:  # an error in one callback must not delay the others
            self._arm_again()
