"""Functions that wait for other processes: for their output or their end, never for time alone."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable


class Deadline:
    """A time limit of so many seconds from now on."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def readable(self, fd: int, what: Callable[[], str]) -> None:
        """Wait until a descriptor is readable. Raises AssertionError, with ``what()``, after the time limit."""
        left = max(0.0, self._end - time.monotonic())
        assert select.select([fd], [], [], left)[0], what()


def wait_gone(pids: Iterable[int], seconds: float) -> None:
    """Wait until all processes have ended; they need not be children of this one. Raises AssertionError with the id of
    one that has not."""
    deadline = Deadline(seconds)
    for pid in pids:
        try:
            watch = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            deadline.readable(watch, lambda pid=pid: f"process {pid} still runs")  # type: ignore[misc]
        finally:
            os.close(watch)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Evaluate a condition repeatedly until it holds, if there is no event to wait for. Raises AssertionError after the
    time limit."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.02)
