"""Schedules the retries of failed copies: each attempt leaves a record that is kept forever (COPY_SEGMENT_STARTED)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from milena.runtime.clock import Clock
from milena.tiered.store.remote_storage import RemoteStorageError

ROUNDS: Final = 10
SHORTEST_LIMIT: Final = 30.0
LONGEST_LIMIT: Final = 300.0
"""Bounds (seconds) of the longest pause, which is this many rounds."""


class CopyAttempts:
    """The attempts to copy to one store, or of one partition. While attempts fail, one is made at a time, each after
    twice the previous pause; a successful one lifts the limit. Kafka retries each segment in each round."""

    __slots__ = ("_clock", "_counted", "_failures", "_not_before", "_under_way")

    def __init__(self, clock: Clock, counted: type[RemoteStorageError]) -> None:
        """``counted``: the failures that count."""
        self._clock = clock
        self._counted = counted
        self._failures = 0
        self._not_before = 0.0
        self._under_way = 0

    @property
    def may_begin(self) -> bool:
        return not self._failures or (not self._under_way and self._clock.monotonic() >= self._not_before)

    def forget(self) -> None:
        """Reset the pause: an attempt was requested now."""
        self._failures = 0

    @contextmanager
    def attempt(self, interval: float) -> Iterator[None]:
        """A context manager for one attempt. ``interval``: seconds between two rounds."""
        before = self._failures
        self._under_way += 1
        try:
            yield
        except self._counted:
            if self._failures == before:  # else a concurrent attempt has failed
                self._failures += 1
                longest = min(max(interval * ROUNDS, SHORTEST_LIMIT), max(interval, LONGEST_LIMIT))
                pause = min(interval * 2 ** min(before, 20), longest)
                self._not_before = self._clock.monotonic() + pause
            raise
        else:
            self._failures = 0
        finally:
            self._under_way -= 1
