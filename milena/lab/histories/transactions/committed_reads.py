"""What readers with read_committed saw of one partition whose records are written in transactions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from milena.lab.histories.events import Void
from milena.lab.histories.sessions import ReadSessions
from milena.lab.histories.transactions.events import CommittedPoll, FinalCommitted

Finding: TypeAlias = tuple[str, str]
MAX_FETCH_DELAY: Final = 5.0
"""Seconds for which a fetched record may have been in flight, or buffered, before the reader returned it."""


class OpenFrom(NamedTuple):
    """A transaction had a record at an offset, and was not ended before a time."""

    offset: int
    until: float
    transaction: str


class CommittedReads:
    """``seen`` is the offset at which each value was seen first. ``final`` is None until it is known."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.final: FinalCommitted | None = None
        self._value_at: dict[int, str] = {}
        self._conflicts: list[Finding] = []
        self._in_final: frozenset[str] = frozenset()
        self._sessions = ReadSessions()
        self._highest: list[tuple[float, int, str]] = []
        """(time, highest offset, session) of each poll."""
        self._voids: list[Void] = []

    def polled(self, poll: CommittedPoll) -> None:
        for offset, value in poll.records:
            self._saw(offset, value)
        if poll.records:
            self._highest.append((poll.at, max(offset for offset, _ in poll.records), poll.session))
        self._sessions.add(poll)

    def ended(self, final: FinalCommitted) -> None:
        self.final = final
        self._in_final = frozenset(value for _, value in final.records)
        for offset, value in final.records:
            self._saw(offset, value)

    def voided(self, void: Void) -> None:
        self._voids.append(void)

    def _saw(self, offset: int, value: str) -> None:
        if self._value_at.setdefault(offset, value) != value:
            self._conflicts.append(("inconsistent offsets", f"{self._value_at[offset]} and {value} were at {offset}"))
        if self.seen.setdefault(value, offset) != offset:
            self._conflicts.append(("duplicate", f"{value} is at {self.seen[value]} and {offset}"))

    def is_void(self, begun: float) -> bool:
        """Whether a fault has voided the promises for what was begun at a time."""
        return any(begun <= void.at for void in self._voids)

    def is_missing(self, value: str, offset: int) -> bool:
        """Whether a record that must be visible is not. ``offset`` is -1 if unknown. A record above the last stable
        offset is hidden by an open transaction, which is another anomaly."""
        final = self.final
        if final is None or value in self._in_final:
            return False
        if offset < 0:
            return final.start == 0 and final.last_stable == final.end
        return final.start <= offset < final.last_stable

    def gone(self) -> Iterator[tuple[str, int]]:
        """Yield the values that were read and are not visible in the end, with their offsets."""
        for value, offset in self.seen.items():
            if self.is_missing(value, offset):
                yield value, offset

    @property
    def visible(self) -> tuple[int, ...]:
        """The offsets of all visible records in the end, in order."""
        return tuple(sorted(offset for offset, _ in self.final.records)) if self.final is not None else ()

    def violations(self) -> Iterator[Finding]:
        final = self.final
        if not self._voids:
            yield from self._conflicts
        if final is not None and final.last_stable < final.end and not self._voids:
            yield (
                "hanging transaction",
                f"the last stable offset is {final.last_stable}, and the high watermark {final.end}",
            )
        yield from self._jumps()

    def _jumps(self) -> Iterator[Finding]:
        # After a void, other records may be at the offsets of those that were lost.
        values = self._value_at if self.final is None else dict(self.final.records)
        offsets = sorted(values)
        for jump in self._sessions.jumps:
            if self.is_void(jump.before_at - MAX_FETCH_DELAY):
                continue
            if jump.back:
                yield f"{jump.kind}non-monotonic poll", f"{jump.session} read {jump.after} after {jump.before}"
                continue
            index = bisect_left(offsets, jump.before + 1)
            if index < len(offsets) and offsets[index] < jump.after:
                skipped = f"{values[offsets[index]]} is at {offsets[index]}"
                yield f"{jump.kind}poll skip", f"{jump.session} read {jump.after} after {jump.before}; {skipped}"

    def beyond_last_stable(self, opens: list[OpenFrom]) -> Iterator[Finding]:
        """Yield the polls that returned a record at or above the first offset of a transaction that was still open.
        ``opens`` must be sorted by offset."""
        longest: list[OpenFrom] = []
        for one in opens:
            longest.append(one if not longest or one.until > longest[-1].until else longest[-1])
        offsets = [one.offset for one in opens]
        for at, offset, session in self._highest:
            index = bisect_right(offsets, offset) - 1
            if index >= 0 and longest[index].until > at and not self.is_void(at):
                one = longest[index]
                yield (
                    "read beyond the last stable offset",
                    f"{session} read {offset} at {at:.3f}; {one.transaction} has {one.offset} and did not end before "
                    f"{one.until:.3f}",
                )
