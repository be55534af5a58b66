"""When a copy that failed is tried again: each attempt leaves a record that is kept for good (COPY_SEGMENT_STARTED)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from milena.runtime.clock import Clock
from milena.tiered.store.remote_storage import RemoteStorageError

ROUNDS: Final = 10
SHORTEST_LIMIT: Final = 30.0
LONGEST_LIMIT: Final = 300.0
"""Bounds in seconds of the longest pause, which is that of so many rounds."""


class CopyAttempts:
    """Of all that goes to one store, or of one partition. While attempts fail, one is made at a time, each after twice
    the pause before it; one that succeeds sets all free. Kafka tries each segment in each round."""

    __slots__ = ("_clock", "_counted", "_failures", "_not_before", "_under_way")

    def __init__(self, clock: Clock, counted: type[RemoteStorageError]) -> None:
        """``counted``: the failures that matter."""
        self._clock = clock
        self._counted = counted
        self._failures = 0
        self._not_before = 0.0
        self._under_way = 0

    @property
    def may_begin(self) -> bool:
        return not self._failures or (not self._under_way and self._clock.monotonic() >= self._not_before)

    def forget(self) -> None:
        """Somebody asks for an attempt now."""
        self._failures = 0

    @contextmanager
    def attempt(self, interval: float) -> Iterator[None]:
        """``interval``: seconds between two rounds."""
        before = self._failures
        self._under_way += 1
        try:
            yield
        except self._counted:
            if self._failures == before:  # else another one that began with it has failed
                self._failures += 1
                longest = min(max(interval * ROUNDS, SHORTEST_LIMIT), max(interval, LONGEST_LIMIT))
                pause = min(interval * 2 ** min(before, 20), longest)
                self._not_before = self._clock.monotonic() + pause
            raise
        else:
            self._failures = 0
        finally:
            self._under_way -= 1
