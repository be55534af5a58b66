"""Sessions of readers: finds records that do not directly follow the previous record of their session."""

from __future__ import annotations

from typing import NamedTuple

from milena.lab.histories.events import Poll


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

    def add(self, poll: Poll) -> None:
        last, last_at = self._last.get(poll.session, (None, poll.at))
        internal = False
        for offset, _ in poll.records:
            if last is not None and offset != last + 1:
                self.jumps.append(Jump(poll.session, last, offset, last_at, poll.at, internal))
            last, internal = offset, True
        if last is not None:
            self._last[poll.session] = (last, poll.at)
