"""Logging of unexpected errors that must not end the node: an error caused by network input fails one request,
connection, partition or step of a task. Each error is counted; each place in the code is logged at most once per
interval, with the traceback."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final

from milena.runtime.clock import Clock
from milena.runtime.logging import get_logger

LOG_INTERVAL: Final = 10.0
"""Seconds between two log events of the same place: a peer that causes errors must not fill the log."""
FIRST_PAUSE: Final = 0.1
LAST_PAUSE: Final = 5.0


class Containment:
    """One per node. ``unforeseen`` receives each error instead of the log: the simulation passes a function that ends
    the node, so that a test that provokes an error fails. (OSError is expected there: its disks have faults.)"""

    def __init__(self, clock: Clock, unforeseen: Callable[[str, BaseException], object] | None = None) -> None:
        self.count = 0
        """The number of errors that were logged (metric ``milena_contained_errors``)."""
        self._clock = clock
        self._unforeseen = unforeseen
        self._next: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}
        self._log = get_logger("process")

    async def keep(self, place: str, work: Callable[[], Coroutine[object, object, object]]) -> None:
        """Run ``work`` until it returns; after an error run it again, with growing pauses."""
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                await work()
                return
            except Exception as error:
                self.note(place, error)
            lasted = self._clock.monotonic() - began
            failures = 1 if lasted > LAST_PAUSE else failures + 1
            await self._clock.sleep(min(FIRST_PAUSE * 2.0 ** min(failures - 1, 16), LAST_PAUSE))

    def note(self, place: str, error: BaseException, **context: object) -> None:
        """Log ``error``, which was caught at ``place``, a name from the code; ``context`` says what failed with it."""
        self.count += 1
        of_the_system = isinstance(error, OSError) or isinstance(cause_of(error), OSError)
        if self._unforeseen is not None and not of_the_system:
            self._unforeseen(f"{place} failed", error)
            return
        now = self._clock.monotonic()
        if now < self._next.get(place, now):
            self._unsaid[place] = self._unsaid.get(place, 0) + 1
            return
        self._next[place] = now + LOG_INTERVAL
        unsaid = self._unsaid.pop(place, 0)
        more = {"others_since": unsaid} if unsaid else {}
        self._log.error(f"{place} failed", **context, **more, exc_info=error)


def cause_of(error: BaseException) -> BaseException | None:
    """Return the cause of ``error``. Compiled code does not set ``__cause__``, only ``__context__``."""
    return error.__cause__ or error.__context__
