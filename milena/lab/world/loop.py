"""An asyncio loop with virtual time: it jumps to the next timer as soon as no callback is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn


class Stalled(RuntimeError):
    """No callback is ready, no timer is set, and the main task still waits: it would wait forever."""


class _TimeJump:
    """Takes the place of the selector in asyncio's loop: waiting for I/O advances the clock."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Stalled("the simulation has nothing left to do")
        self._loop.advance(timeout)
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs tasks, futures and timeouts unchanged; ready callbacks in order, timers by their time."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = 1e-9
        self._selector = _TimeJump(self)
        self.errors: list[dict[str, Any]] = []
        """The exceptions of callbacks and unretrieved futures."""
        self.after_event: Callable[[], None] | None = None
        """Called after all ready callbacks have run. An exception from it ends the run."""
        self.set_exception_handler(lambda _loop, context: self.errors.append(context))

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        if self.after_event is not None:
            self.after_event()

    def _process_events(self, event_list: list[object]) -> None:
        """There is no I/O."""

    def _write_to_self(self) -> None:
        """The loop never sleeps, so it need not be woken."""

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> NoReturn:
        raise RuntimeError("threads are not available in the simulation: use Disk.offload")
