"""Sessions of readers: finds records that do not directly follow the previous record of their session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from milena.lab.histories.events import Poll
from milena.lab.histories.transactions.events import CommittedPoll


class Jump(NamedTuple):
    """Two successive records of a session whose offsets are not consecutive, and the times of their polls.
    ``internal``: both are of one poll."""

    session: str
    before: int
    after: int
    before_at: float
    at: float
    internal: bool

    @property
    def back(self) -> bool:
        return self.after <= self.before

    @property
    def kind(self) -> str:
        return "internal " if self.internal else ""


class ReadSessions:
    """The sessions of one partition. ``jumps`` are to be checked when all events are known."""

    def __init__(self) -> None:
        self.jumps: list[Jump] = []
        self._last: dict[str, tuple[int | None, float]] = {}

    def add(self, poll: Poll | CommittedPoll) -> None:
        last, last_at = self._last.get(poll.session, (None, poll.at))
        internal = False
        for offset, _ in poll.records:
            if last is not None and offset != last + 1:
                self.jumps.append(Jump(poll.session, last, offset, last_at, poll.at, internal))
            last, internal = offset, True
        if last is not None:
            self._last[poll.session] = (last, poll.at)


class Series:
    """The offsets that the readers of a series have read together in one partition: a group, or a reader and its
    successors. ``ReadSessions`` does not find a record that was skipped between two sessions, or before the first one.
    Memory: proportional to the number of times that the next read was not at the next offset."""

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
