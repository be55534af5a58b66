"""A manual clock for tests."""

from __future__ import annotations

from collections.abc import Callable


class _Armed:
    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class HandClock:
    """A clock that moves only with ``advance``."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[_Armed] = []

    def time_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object]) -> _Armed:
        timer = _Armed(self.now + delay, callback)
        self.timers.append(timer)
        return timer

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")

    def armed(self) -> int:
        return sum(timer.callback is not None for timer in self.timers)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            due = [timer for timer in self.timers if timer.callback is not None and timer.when <= end]
            if not due:
                break
            timer = min(due, key=lambda one: one.when)
            self.now = max(self.now, timer.when)
            callback, timer.callback = timer.callback, None
            assert callback is not None
            callback()
        self.now = end
