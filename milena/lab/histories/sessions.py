"""Readers' sessions: the last record of each, and the places at which the next one is not consecutive."""

from __future__ import annotations

from typing import NamedTuple

from milena.lab.histories.events import Poll


class Jump(NamedTuple):
    """Two records that a session read one after the other, with offsets that are not consecutive, and the times of the
    polls."""

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
    """The sessions of one partition. ``jumps`` remain to be judged."""

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
