"""Rules for progress during and after faults (liveness). Anomalies:

- **no progress of writes**: writes with acks=all to a partition were in progress and none was acknowledged, for more
  than ``patience`` seconds in which progress was *due*.
- **no progress of reads**: a reader had read all records that any reader had read, more records were acknowledged, and
  no reader read any of them, for that long. Readers that end are not checked: records never read are ``unseen``.
- **no progress of commits**: commits of a group were in progress and none was acknowledged, for that long.

A fault (``Fault``) excuses a partition from ``begun`` until ``recovers`` seconds after ``mended``; if the partition is
``writable`` during it, only for ``within`` seconds after ``begun`` and ``recovers`` seconds after ``mended``. Progress
of a partition is due from the first fault on, whenever no fault excuses it. The same holds for groups.

Only the time of attempts counts, from the start of a write to its end, whatever its outcome. Without attempts for long
enough, progress is not checked (``Judge.unjudged``). A write that began before a fault and is acknowledged during it
counts as progress then. Writes with acks=1 are neither attempts nor progress.

During a measured stall of the machine (``machine.MachineStall``) a lack of progress is not an anomaly; it is reported
as *not judged*.
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
ACKNOWLEDGEMENT: Final = -1
END: Final = sys.maxsize


class Stall(NamedTuple):
    """A time without progress."""

    begun: float
    ended: float
    waited: tuple[Span, ...]
    """The parts of this time in which clients waited."""


class Unjudged(NamedTuple):
    """A fault for which the progress of a partition was not checked. ``untried``: no client tried to write for long
    enough; otherwise the fault ended too soon after the first attempt."""

    fault: Fault
    untried: bool


class Stalls:
    """Attempts and successes of one kind of operation, added in any order. Memory: 24 bytes for each."""

    def __init__(self) -> None:
        self._begun, self._ended = array("d"), array("d")
        self._done = array("d")

    def tried(self, begun: float, ended: float, *, done: bool) -> None:
        self._begun.append(begun)
        self._ended.append(ended)
        if done:
            self._done.append(ended)

    def spans(self) -> list[Span]:
        """Return the times in which any attempt was in progress."""
        return joined(sorted(zip(self._begun, self._ended, strict=True)))

    def longer_than(self, seconds: float) -> Iterator[Stall]:
        """Yield the times without success in which clients waited for more than ``seconds``, in order."""
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


class AttemptSpans:
    """The times in which attempts were in progress: spans that do not overlap, in order."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._begins = [begun for begun, _ in spans]

    def seconds_from_first(self, begun: float, ended: float) -> float:
        """Return the seconds from the first attempt between two times to ``ended``; 0 without an attempt. This is how
        long a lack of progress would have lasted if no attempt had succeeded."""
        first = next(_within(self._spans, self._begins, begun, ended), None)
        return 0.0 if first is None else ended - first[0]


class ReaderWaits:
    """Acknowledged writes and polls of one partition, added in any order. Memory: 24 bytes for each."""

    def __init__(self) -> None:
        self._acked_at, self._acked = array("d"), array("q")
        self._polled_at, self._polled, self._by = array("d"), array("q"), array("l")
        self._sessions: dict[str, int] = {}

    def acknowledged(self, at: float, offset: int) -> None:
        self._acked_at.append(at)
        self._acked.append(offset)

    def polled(self, at: float, session: str, last: int) -> None:
        """Add a poll. ``last``: its highest offset; -1 if it was empty."""
        self._polled_at.append(at)
        self._polled.append(last)
        self._by.append(self._sessions.setdefault(session, len(self._sessions)))

    def longer_than(self, seconds: float) -> Iterator[Stall]:
        """Yield the times, longer than ``seconds``, in which acknowledged records were not read by any reader, although
        a reader had read all earlier ones."""
        gone: dict[int, float] = {}
        for at, session in zip(self._polled_at, self._by, strict=True):
            gone[session] = max(at, gone.get(session, at))
        highest = known = -1
        since: float | None = None
        last: dict[int, int] = {}
        for at, session, offset in (*self._moments(), (max(gone.values(), default=0.0), ACKNOWLEDGEMENT, END)):
            if session == ACKNOWLEDGEMENT and offset != END:
                known = max(known, offset)
            elif offset > highest:
                stall = None if since is None else self._stall(since, at, (s for s in last if last[s] == highest), gone)
                if stall is not None and stall.ended - stall.begun > seconds:
                    yield stall
                highest, since = offset, None
            if known > highest and since is None:
                since = at
            if session != ACKNOWLEDGEMENT:
                last[session] = max(offset, last.get(session, -1))

    def _moments(self) -> list[tuple[float, int, int]]:
        """Return (time, session or ``ACKNOWLEDGEMENT``, offset), sorted."""
        moments = [(at, ACKNOWLEDGEMENT, offset) for at, offset in zip(self._acked_at, self._acked, strict=True)]
        moments += zip(self._polled_at, self._by, self._polled, strict=True)
        moments.sort()
        return moments

    def _stall(self, since: float, at: float, waiting: Iterable[int], gone: Mapping[int, float]) -> Stall | None:
        until = min(at, max((gone[session] for session in waiting), default=since))
        return Stall(since, until, ((since, until),)) if until > since else None


class Due:
    """The times in which progress of a partition or group was due, given faults and stalls of the machine."""

    def __init__(self, faults: Iterable[Fault], works: Callable[[Fault], bool], machine: MachineStalls) -> None:
        """``works``: returns whether the partition or group must make progress during a fault."""
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
        """Return the seconds of ``spans`` in which progress was due, without regard to stalls of the machine."""
        return self._length_without(self._excused, spans)

    def judged_seconds(self, spans: Sequence[Span]) -> float:
        """Like ``seconds``, without times in which the machine stalled."""
        return self._length_without(self._or_stalled, spans)

    def _length_without(self, excused: Sequence[Span], spans: Sequence[Span]) -> float:
        since = [(max(begun, self._first), ended) for begun, ended in spans if ended > self._first]
        begins = [begin for begin, _ in excused]
        return _length(since) - sum(_length(tuple(_within(excused, begins, *span))) for span in since)


def joined(spans: Sequence[Span]) -> list[Span]:
    """Return sorted ``spans`` with those that overlap or touch joined to one."""
    union: list[Span] = []
    for begun, ended in spans:
        if union and begun <= union[-1][1]:
            if ended > union[-1][1]:
                union[-1] = (union[-1][0], ended)
        else:
            union.append((begun, ended))
    return union


def _within(spans: Sequence[Span], begins: Sequence[float], begun: float, ended: float) -> Iterator[Span]:
    """Yield the parts of ``spans``, which do not overlap, between two times."""
    for index in range(max(0, bisect_right(begins, begun) - 1), len(spans)):
        start, end = spans[index]
        if start >= ended:
            return
        if end > begun:
            yield max(start, begun), min(end, ended)


def _length(spans: Iterable[Span]) -> float:
    return sum(ended - begun for begun, ended in spans)


class LackOfProgress(NamedTuple):
    """A lack of progress. ``anomaly``: the value of an ``Anomaly``. ``stalled``: 0 if it counts; else it is not judged,
    because the machine stalled for that many seconds."""

    anomaly: str
    text: str
    stalled: float

    @property
    def reason(self) -> str:
        """The text, with the reason why this is not judged."""
        return f"{self.text}; not judged: the machine stalled for {self.stalled:.1f} s"


def lacks_of_progress(
    anomaly: str, stalls: Iterable[Stall], due: Due, patience: float, what: str
) -> Iterator[LackOfProgress]:
    """Yield each stall with more than ``patience`` seconds in which progress was due."""
    for stall in stalls:
        seconds = due.seconds(stall.waited)
        if seconds > patience:
            text = f"{what} from {stall.begun:.3f} to {stall.ended:.3f}, of which {seconds:.1f} s count"
            judged = due.judged_seconds(stall.waited) > patience
            yield LackOfProgress(anomaly, text, 0.0 if judged else due.machine.seconds_within(stall.begun, stall.ended))
