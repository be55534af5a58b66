"""What readers that go on where others have stopped have read together: a group, or a reader and its successors.

Sessions alone do not show a record that was passed over between two of them, or before the first one.
"""

from __future__ import annotations

from collections.abc import Iterator

from milena.lab.histories.events import Poll


class Series:
    """Of one partition. Memory: by the number of times that they did not go on at the next offset."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []
        """(first, last) offset."""
        self.has_ended = False
        """Whether they have come to the end of the log."""

    def add(self, poll: Poll) -> None:
        self.has_ended |= not poll.records
        for offset, _ in poll.records:
            if self._runs and self._runs[-1][1] + 1 == offset:
                self._runs[-1] = self._runs[-1][0], offset
            else:
                self._runs.append((offset, offset))

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """First offset, and the one behind the last, of what they have not read: from ``start`` on up to the highest
        that they have, or up to ``end`` if they have come to the end."""
        at = start
        for first, last in sorted(self._runs):
            if first > at:
                yield at, first
            at = max(at, last + 1)
        if self.has_ended and at < end:
            yield at, end
