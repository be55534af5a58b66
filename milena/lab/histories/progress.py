"""Progress during faults and after them: what a cluster must still do, not only what it must not.

- **no progress of writes**: writes with acks=all to a partition were under way and none was acknowledged, for more than
  ``patience`` seconds in which the partition was *due*.
- **no progress of reads**: a reader had read all that anybody had read, more was acknowledged, and nobody read any of
  it, for that long. Readers that never come back are not judged: what nobody reads is ``unseen`` in the end.
- **no progress of commits**: commits of a group were under way and none was acknowledged, for that long.

A fault (``Fault``) excuses a partition from ``begun`` until ``recovers`` seconds after ``mended``; if the partition is
``writable`` meanwhile, only for ``within`` seconds after ``begun`` and ``recovers`` seconds after ``mended``. A
partition is due from the first fault on, whenever no fault excuses it: of several at once each may excuse it. Groups
likewise.

Only time in which clients were trying counts, from the begin of a write to its end, whatever its outcome: where nobody
tried for long enough, there was neither progress nor a lack of it (``Judge.unjudged``). A write that
began before a fault and was acknowledged late is a write that was acknowledged then. acks=1 is neither an attempt nor
progress.

A measured stall of the machine (``machine.MachineStall``) does not excuse a partition like a fault: what would be an
anomaly without the stall is *not judged*, and is reported as such.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from milena.lab.histories.faults import Fault
from milena.lab.histories.machine import MachineStalls

Span: TypeAlias = tuple[float, float]
"""From, to; seconds."""
PATIENCE: Final = 5.0
NOBODY: Final = -1
END: Final = sys.maxsize


class Stall(NamedTuple):
    """A time without progress that somebody waited for."""

    begun: float
    ended: float
    waited: tuple[Span, ...]
    """The parts of it in which somebody waited."""


class Unjudged(NamedTuple):
    """A fault of which the progress of a partition was not judged. ``untried``: for as long as that takes nobody tried
    to write; else the fault ended too soon after somebody did."""

    fault: Fault
    untried: bool


class Stalls:
    """Attempts and successes of one kind, in any order. Memory: 24 bytes for each."""

    def __init__(self) -> None:
        self._begun, self._ended = array("d"), array("d")
        self._done = array("d")

    def tried(self, begun: float, ended: float, *, done: bool) -> None:
        self._begun.append(begun)
        self._ended.append(ended)
        if done:
            self._done.append(ended)

    def spans(self) -> list[Span]:
        """The times in which any attempt was under way."""
        return joined(sorted(zip(self._begun, self._ended, strict=True)))

    def longer_than(self, seconds: float) -> Iterator[Stall]:
        """The stalls in which somebody waited for more than so many seconds, in order."""
        trying = self.spans()
        if not trying:
            return
        done = [trying[0][0], *sorted(self._done), trying[-1][1]]
        begins = [begun for begun, _ in trying]
        for before, after in pairwise(done):
            if after - before <= seconds:
                continue
            waited = tuple(_within(trying, begins, before, after))
            if _length(waited) > seconds:
                yield Stall(before, after, waited)


class Tries:
    """When attempts were under way: spans that do not overlap, in order."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._begins = [begun for begun, _ in spans]

    def seconds_from_first(self, begun: float, ended: float) -> float:
        """From the first moment of this time at which anybody tried, to its end; 0 if nobody did. An attempt goes on
        while it has no answer: a lack of progress would have lasted so long."""
        first = next(_within(self._spans, self._begins, begun, ended), None)
        return 0.0 if first is None else ended - first[0]


class Waits:
    """What readers of one partition waited for, in any order. Memory: 24 bytes for each write and poll."""

    def __init__(self) -> None:
        self._acked_at, self._acked = array("d"), array("q")
        self._polled_at, self._polled, self._by = array("d"), array("q"), array("l")
        self._sessions: dict[str, int] = {}

    def acknowledged(self, at: float, offset: int) -> None:
        self._acked_at.append(at)
        self._acked.append(offset)

    def polled(self, at: float, session: str, last: int) -> None:
        """``last``: the highest offset of the poll; -1 if it was empty."""
        self._polled_at.append(at)
        self._polled.append(last)
        self._by.append(self._sessions.setdefault(session, len(self._sessions)))

    def longer_than(self, seconds: float) -> Iterator[Stall]:
        """Times in which a reader had read all that anybody had, more was acknowledged, and nobody read it."""
        gone: dict[int, float] = {}
        for at, session in zip(self._polled_at, self._by, strict=True):
            gone[session] = max(at, gone.get(session, at))
        highest = known = -1
        since: float | None = None
        last: dict[int, int] = {}
        for at, session, offset in (*self._moments(), (max(gone.values(), default=0.0), NOBODY, END)):
            if session == NOBODY and offset != END:
                known = max(known, offset)
            elif offset > highest:
                stall = None if since is None else self._stall(since, at, (s for s in last if last[s] == highest), gone)
                if stall is not None and stall.ended - stall.begun > seconds:
                    yield stall
                highest, since = offset, None
            if known > highest and since is None:
                since = at
            if session != NOBODY:
                last[session] = max(offset, last.get(session, -1))

    def _moments(self) -> list[tuple[float, int, int]]:
        """(time, session or ``NOBODY`` for an acknowledgement, offset), in order."""
        moments = [(at, NOBODY, offset) for at, offset in zip(self._acked_at, self._acked, strict=True)]
        moments += zip(self._polled_at, self._by, self._polled, strict=True)
        moments.sort()
        return moments

    def _stall(self, since: float, at: float, waiting: Iterable[int], gone: Mapping[int, float]) -> Stall | None:
        until = min(at, max((gone[session] for session in waiting), default=since))
        return Stall(since, until, ((since, until),)) if until > since else None


class Due:
    """When a partition or a group was due, by the faults of a history and the stalls of the machine."""

    def __init__(self, faults: Iterable[Fault], works: Callable[[Fault], bool], machine: MachineStalls) -> None:
        """``works``: whether the partition or group must make progress while the fault lasts."""
        self.machine = machine
        spans: list[Span] = []
        begun = []
        for fault in faults:
            begun.append(fault.begun)
            over = fault.mended + fault.recovers
            if works(fault):
                spans += [(fault.begun, fault.begun + fault.within), (fault.mended, over)]
            else:
                spans.append((fault.begun, over))
        self._first = min(begun, default=float("inf"))
        self._excused = joined(sorted(spans))
        self._or_stalled = joined(sorted([*spans, *machine.spans]))

    def seconds(self, spans: Sequence[Span]) -> float:
        """Return how many seconds of some times it was due by the faults."""
        return self._length_without(self._excused, spans)

    def judged_seconds(self, spans: Sequence[Span]) -> float:
        """Return how many of these seconds are left if times in which the machine stalled do not count."""
        return self._length_without(self._or_stalled, spans)

    def _length_without(self, excused: Sequence[Span], spans: Sequence[Span]) -> float:
        since = [(max(begun, self._first), ended) for begun, ended in spans if ended > self._first]
        begins = [begin for begin, _ in excused]
        return _length(since) - sum(_length(tuple(_within(excused, begins, *span))) for span in since)


def joined(spans: Sequence[Span]) -> list[Span]:
    """Those that overlap or touch as one; ``spans`` are sorted."""
    found: list[Span] = []
    for begun, ended in spans:
        if found and begun <= found[-1][1]:
            if ended > found[-1][1]:
                found[-1] = (found[-1][0], ended)
        else:
            found.append((begun, ended))
    return found


def _within(spans: Sequence[Span], begins: Sequence[float], begun: float, ended: float) -> Iterator[Span]:
    """The parts of ``spans``, which do not overlap, between two times."""
    for index in range(max(0, bisect_right(begins, begun) - 1), len(spans)):
        start, end = spans[index]
        if start >= ended:
            return
        if end > begun:
            yield max(start, begun), min(end, ended)


def _length(spans: Iterable[Span]) -> float:
    return sum(ended - begun for begun, ended in spans)


class Lack(NamedTuple):
    """A lack of progress. ``anomaly``: the value of an ``Anomaly``. ``stalled``: 0 if it counts; else it is not judged,
    because the machine stalled for that many seconds."""

    anomaly: str
    text: str
    stalled: float

    @property
    def reason(self) -> str:
        """The text with the reason why it is not judged."""
        return f"{self.text}; not judged: the machine stalled for {self.stalled:.1f} s"


def lacks(anomaly: str, stalls: Iterable[Stall], due: Due, patience: float, what: str) -> Iterator[Lack]:
    """Return each stall that lasted for more than ``patience`` seconds in which progress was due."""
    for stall in stalls:
        seconds = due.seconds(stall.waited)
        if seconds > patience:
            text = f"{what} from {stall.begun:.3f} to {stall.ended:.3f}, of which {seconds:.1f} s count"
            judged = due.judged_seconds(stall.waited) > patience
            yield Lack(anomaly, text, 0.0 if judged else due.machine.seconds_within(stall.begun, stall.ended))
