"""Fetches of the metadata log that wait for something new: each until a commit concerns it, or its time is up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.clock import Clock, Timer


@dataclass(slots=True, eq=False)
class Waiter:
    """``try_answer`` answers if there is something to say, or at any rate when told so, and returns whether it did."""

    try_answer: Callable[[bool], bool]
    timer: Timer | None = field(default=None, init=False)


class LongPolls:
    """All that wait, in the order in which they came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, seconds: float, try_answer: Callable[[bool], bool]) -> None:
        """Answer at once if possible, else when ``commit`` says so, and after ``seconds`` at the latest."""
        if try_answer(seconds <= 0):
            return
        waiter = Waiter(try_answer)
        self._waiting[waiter] = None
        waiter.timer = self._clock.call_later(seconds, lambda: self._expire(waiter))

    def commit(self) -> None:
        """Something was committed: all that wait look again."""
        for waiter in list(self._waiting):
            if waiter.try_answer(False):
                self._remove(waiter)

    def stop(self) -> None:
        """Nobody is answered any more."""
        for waiter in list(self._waiting):
            self._remove(waiter)

    def _expire(self, waiter: Waiter) -> None:
        if waiter in self._waiting:
            self._remove(waiter)
            waiter.try_answer(True)

    def _remove(self, waiter: Waiter) -> None:
        del self._waiting[waiter]
        if waiter.timer is not None:
            waiter.timer.cancel()
