"""When compaction gets the broker's own priority (docs/decisions/2026-11-27-urgent-compaction.md).

A worker normally has a low priority, so that it takes only the CPU that clients leave. On an overloaded machine nothing
is left, and logs grow. So a log becomes urgent after it was due for too long, or if a worker of low priority makes too
little progress with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from milena.runtime.clock import Clock

URGENT_AFTER: Final = 60.0
"""Seconds for which a log may be due, or exceed ``max.compaction.lag.ms``, before it is urgent."""
JUDGED_AFTER: Final = 30.0
"""Seconds after which the progress of a worker is judged."""
LEAST_SHARE: Final = 0.05
"""Share of one CPU that a worker uses at least unless it starves. Bytes would say little: compressed batches and small
records take more CPU for each byte of the files."""

K = TypeVar("K")


class Starved(Exception):
    """A worker of low priority makes too little progress; the round begins again as an urgent one."""


class Urgency(Generic[K]):
    """Since when logs are due, for all tasks of a cleaner. ``K`` identifies a log. The owner forgets logs that are gone
    or that are not compacted any more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_since: dict[K, float] = {}
        self._starved: set[K] = set()

    def note(self, log: K, *, is_due: bool) -> None:
        """Note that a log was examined."""
        if is_due:
            self._due_since.setdefault(log, self._clock.monotonic())
        else:
            self.forget(log)

    def note_starved(self, log: K) -> None:
        """Note that the worker of a log made too little progress."""
        self._starved.add(log)

    def forget(self, log: K) -> None:
        """Note that a log was cleaned, is gone, or is not compacted any more."""
        self._due_since.pop(log, None)
        self._starved.discard(log)

    def is_urgent(self, log: K, overdue_ms: int) -> bool:
        """``overdue_ms``: the time since the log exceeded ``max.compaction.lag.ms``."""
        now = self._clock.monotonic()
        due_for = now - self._due_since.get(log, now)
        return log in self._starved or max(due_for, overdue_ms / 1000) > URGENT_AFTER

    @property
    def logs(self) -> list[K]:
        """The logs that are due."""
        return [*self._due_since]


class Progress:
    """The progress of one round with low priority. ``cpu_seconds`` returns the CPU time that the worker has reported so
    far; None if it does not report it, as in the simulation."""

    def __init__(self, clock: Clock, cpu_seconds: Callable[[], float | None]) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._paused = 0.0
        self._cpu_seconds = cpu_seconds
        self._before = cpu_seconds() or 0.0

    def paused(self, seconds: float) -> None:
        """Note that the worker was throttled for so long."""
        self._paused += seconds

    def check(self) -> None:
        """Raises Starved."""
        elapsed, total = self._clock.monotonic() - self._began - self._paused, self._cpu_seconds()
        if total is None or elapsed <= JUDGED_AFTER:
            return
        used = total - self._before
        if used < elapsed * LEAST_SHARE:
            raise Starved(f"{used:.1f} s of CPU in {elapsed:.0f} s")
