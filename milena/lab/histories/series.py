"""The offsets that the readers of a series have read together: a group, or a reader and its successors.

The check of sessions does not find a record that was skipped between two sessions, or before the first one.
"""

from __future__ import annotations

from collections.abc import Iterator

from milena.lab.histories.events import Poll


class Series:
    """The reads of one series in one partition. Memory: proportional to the number of times that the next read was not
    at the next offset."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []
        """(first, last) offset."""
        self.has_ended = False
        """Whether a reader has reached the end of the log."""

    def add(self, poll: Poll) -> None:
        self.has_ended |= not poll.records
        for offset, _ in poll.records:
            if self._runs and self._runs[-1][1] + 1 == offset:
                self._runs[-1] = self._runs[-1][0], offset
            else:
                self._runs.append((offset, offset))

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of offsets (first, end exclusive) that were not read, from ``start`` to the highest offset
        read, or to ``end`` if a reader has reached the end."""
        at = start
        for first, last in sorted(self._runs):
            if first > at:
                yield at, first
            at = max(at, last + 1)
        if self.has_ended and at < end:
            yield at, end
