"""Fetches of the metadata log that wait for new records: each until a commit concerns it, or its time is up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from milena.runtime.clock import Clock, Timer
from milena.runtime.containment import Containment


@dataclass(slots=True, eq=False)
class Waiter:
    """``try_answer`` answers if there is something to report, or in any case when it is passed True; it returns whether
    it has answered. ``lost`` is called if it fails; neither the commit nor the other fetches fail with it."""

    try_answer: Callable[[bool], bool]
    lost: Callable[[], object]
    timer: Timer | None = field(default=None, init=False)


class LongPolls:
    """All waiting fetches, the oldest first."""

    def __init__(self, clock: Clock, contained: Containment) -> None:
        self._clock = clock
        self._contained = contained
        self._waiting: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, seconds: float, try_answer: Callable[[bool], bool], lost: Callable[[], object]) -> None:
        """Answer at once if possible, else after a commit, and after ``seconds`` at the latest."""
        if try_answer(seconds <= 0):
            return
        waiter = Waiter(try_answer, lost)
        self._waiting[waiter] = None
        waiter.timer = self._clock.call_later(seconds, lambda: self._expire(waiter))

    def commit(self) -> None:
        """Something was committed: check all waiting fetches."""
        for waiter in list(self._waiting):
            if self._look(waiter, final=False):
                self._remove(waiter)

    def _look(self, waiter: Waiter, *, final: bool) -> bool:
        try:
            return waiter.try_answer(final)
        except Exception as error:
            self._contained.note("a fetch that waits for metadata", error)
            waiter.lost()
            return True

    def stop(self) -> None:
        """Drop all waiting fetches without an answer."""
        for waiter in list(self._waiting):
            self._remove(waiter)

    def _expire(self, waiter: Waiter) -> None:
        if waiter in self._waiting:
            self._remove(waiter)
            self._look(waiter, final=True)

    def _remove(self, waiter: Waiter) -> None:
        del self._waiting[waiter]
        if waiter.timer is not None:
            waiter.timer.cancel()
