"""Waiting fetches of the metadata log: each is answered after a commit that concerns it, or when its wait time is
over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from milena.runtime.clock import Clock, Timer
from milena.runtime.containment import Containment


@dataclass(slots=True, eq=False)
class Waiter:
    """``try_answer(final)`` answers if there is news, or in any case if ``final``, and returns whether it answered. If
    it raises, the error is logged and ``lost`` is called; other fetches and the commit are not affected."""

    try_answer: Callable[[bool], bool]
    lost: Callable[[], object]
    timer: Timer | None = field(default=None, init=False)


class LongPolls:
    """All waiting fetches, oldest first."""

    def __init__(self, clock: Clock, contained: Containment) -> None:
        self._clock = clock
        self._contained = contained
        self._waiting: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, seconds: float, try_answer: Callable[[bool], bool], lost: Callable[[], object]) -> None:
        """Answer now if possible, else after a commit, or after ``seconds``."""
        if try_answer(seconds <= 0):
            return
        waiter = Waiter(try_answer, lost)
        self._waiting[waiter] = None
        waiter.timer = self._clock.call_later(seconds, lambda: self._expire(waiter))

    def commit(self) -> None:
        """Records were committed: try all waiting fetches."""
        for waiter in list(self._waiting):
            if self._try(waiter, final=False):
                self._remove(waiter)

    def _try(self, waiter: Waiter, *, final: bool) -> bool:
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
            self._try(waiter, final=True)

    def _remove(self, waiter: Waiter) -> None:
        del self._waiting[waiter]
        if waiter.timer is not None:
            waiter.timer.cancel()
