"""How long each fault kept partitions from accepting writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from statistics import median
from typing import Final, NamedTuple

from milena.lab.histories.faults import Effect, Fault
from milena.lab.histories.progress import PATIENCE, Stall, Unjudged

FLOWS: Final = 0.1
"""Seconds between two acknowledged writes that count as no outage."""


class Outages:
    """For each fault the longest time for which writes to any one partition waited without an acknowledgement, from
    the fault's begin until it should have recovered, or until the next one began after it was mended. Of two faults at
    a time, both are to blame."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._nexts = [min((one.begun for one in faults if one.begun >= fault.mended), default=inf) for fault in faults]
        self.seconds = [0.0] * len(faults)
        self._unjudged: set[Fault] = set()
        self._untried: set[Fault] = set()

    def unjudged(self, found: Iterable[Unjudged]) -> None:
        """Those of one partition."""
        for one in found:
            self._unjudged.add(one.fault)
            if one.untried:
                self._untried.add(one.fault)

    def stalled(self, stalls: Iterable[Stall]) -> None:
        """Those of one partition."""
        for stall in stalls:
            for index, fault in enumerate(self._faults):
                if stall.begun < fault.mended + fault.recovers and stall.ended > fault.begun:
                    until = self._nexts[index]
                    spans = ((max(begun, fault.begun), min(ended, until)) for begun, ended in stall.waited)
                    waited = sum(max(0.0, ended - begun) for begun, ended in spans)
                    self.seconds[index] = max(self.seconds[index], waited)

    def rows(self) -> list[KindOfFault]:
        """In the order in which kinds were first injected."""
        found: dict[str, list[float]] = {}
        judged = Counter(one.kind.value for one in self._faults if _is_judged(one) and one not in self._unjudged)
        untried = Counter(one.kind.value for one in self._faults if one in self._untried)
        seen = Counter(fault.kind.value for fault in self._faults if fault.effect is Effect.SEEN)
        for fault, seconds in zip(self._faults, self.seconds, strict=True):
            found.setdefault(fault.kind.value, []).append(seconds)
        return [
            KindOfFault(kind, len(those), seen[kind], judged[kind], untried[kind], median(those), max(those))
            for kind, those in found.items()
        ]


def _is_judged(fault: Fault) -> bool:
    """Whether the fault lasted long enough for a lack of progress during it to be an anomaly."""
    return bool(fault.writable) and fault.mended - fault.begun - fault.within > PATIENCE


class KindOfFault(NamedTuple):
    """``seen``: how often its effect was noticed. ``judged``: how often progress was judged while it lasted, in all
    partitions; ``untried``: how often not, since no client tried to write to one of them for so long. Median and worst
    seconds until writes flowed again."""

    kind: str
    times: int
    seen: int
    judged: int
    untried: int
    median: float
    worst: float
