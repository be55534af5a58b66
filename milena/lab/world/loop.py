"""An asyncio loop with virtual time: it jumps to the next timer as soon as no callback is ready."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Any, Final, NoReturn, TypeVarTuple

_Ts = TypeVarTuple("_Ts")

_RESOLUTION: Final = 1e-9
"""Timers that are at most so many seconds apart are due together."""
_FEW_TIMERS: Final = 100
"""Up to so many timers, cancelled ones stay until they are the next."""


class Stalled(RuntimeError):
    """No callback is ready, no timer is set, and the main task still waits: it would wait forever."""


class _Timer(asyncio.TimerHandle):
    """A timer. ``waits``: it is in the loop's heap."""

    __slots__ = ("waits",)

    waits: bool


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs tasks, futures and timeouts unchanged; ready callbacks in order, timers by their time, equal ones in
    the order of asyncio's own loops. Without I/O, threads and debug mode, a callback costs less than with asyncio's
    methods."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._ready: deque[asyncio.Handle]
        self._stopping: bool
        self._scheduled: list[tuple[float, _Timer]] = []
        self._cancelled_timers = 0
        """The number of cancelled timers among them."""
        self.errors: list[dict[str, Any]] = []
        """The exceptions of callbacks and unretrieved futures."""
        self.after_event: Callable[[], None] | None = None
        """Called after all ready callbacks have run. An exception from it ends the run."""
        self.set_exception_handler(lambda _loop, context: self.errors.append(context))

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        timer.waits = True
        heappush(self._scheduled, (when, timer))
        return timer

    def _timer_handle_cancelled(self, handle: _Timer) -> None:
        if handle.waits:
            self._cancelled_timers += 1

    def _run_once(self) -> None:
        """Run the callbacks that are ready, after going on to the next timer if there is none."""
        self._drop_cancelled_timers()
        ready, timers = self._ready, self._scheduled
        if not ready and not self._stopping:
            if not timers:
                raise Stalled("the simulation has nothing left to do")
            self.advance(max(0.0, timers[0][0] - self._now))
        end = self._now + _RESOLUTION
        while timers and timers[0][0] < end:
            timer = heappop(timers)[1]
            timer.waits = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
        if self.after_event is not None:
            self.after_event()

    def _drop_cancelled_timers(self) -> None:
        """Remove the cancelled timers at the head; all of them if they are the larger part."""
        timers = self._scheduled
        if len(timers) > _FEW_TIMERS and 2 * self._cancelled_timers > len(timers):
            for _, timer in timers:
                timer.waits = not timer._cancelled
            timers[:] = [entry for entry in timers if entry[1].waits]
            heapify(timers)
            self._cancelled_timers = 0
        while timers and timers[0][1]._cancelled:
            heappop(timers)[1].waits = False
            self._cancelled_timers -= 1

    def _write_to_self(self) -> None:
        """The loop never sleeps, so it need not be woken."""

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> NoReturn:
        raise RuntimeError("threads are not available in the simulation: use Disk.offload")
