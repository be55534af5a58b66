"""What a run did over time, collected event by event. Memory depends on its seconds, not on its operations."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from milena.lab.histories.events import Event, Poll, Send
from milena.lab.histories.faults import Effect, Fault
from milena.lab.histories.group_events import Asked, RequestOutcome
from milena.lab.histories.keyed import FullRead, KeyedWrite
from milena.lab.histories.machine import MachineStall, SessionTimeout
from milena.lab.histories.progress import Stall
from milena.lab.histories.seen import BrokerSeen, PartitionSeen
from milena.lab.histories.transactions.events import CommittedPoll, TransactionalSend, TransactionEnd

SLOTS: Final = 1800
"""The most points of a plot: a longer run has slots of more than a second."""
SHORTEST: Final = 1e-5
"""Seconds. Latencies are counted in buckets that are 5 % wide, from here on."""
STEP: Final = math.log(1.05)
BUCKETS: Final = 400
KEYED: Final = "keyed"
"""Writes and reads with keys, whose events name no library."""


class Latencies:
    """Of one second. Percentiles are exact to 5 %."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._buckets = array("I", bytes(4 * BUCKETS))

    def add(self, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        at = int(math.log(max(seconds, SHORTEST) / SHORTEST) / STEP)
        self._buckets[min(at, BUCKETS - 1)] += 1

    def join(self, other: Latencies) -> None:
        self.longest = max(self.longest, other.longest)
        for at, count in enumerate(other._buckets):
            self._buckets[at] += count

    def percentile(self, share: float) -> float:
        """Seconds; 0 if there were none."""
        wanted, seen = share * sum(self._buckets), 0
        for at, count in enumerate(self._buckets):
            seen += count
            if count and seen >= wanted:
                return min(self.longest, SHORTEST * math.exp((at + 0.5) * STEP))
        return 0.0


@dataclass(frozen=True, slots=True)
class Slots:
    """Values for each ``width`` seconds from ``begun`` on. Rates are for a second."""

    begun: int
    width: int
    writes: Mapping[str, Sequence[float]]
    reads: Mapping[str, Sequence[float]]
    latency: Mapping[str, Sequence[float | None]]
    """``p50``, ``p99`` and ``max``, in seconds; None where nothing was acknowledged."""
    unavailable: Sequence[int]
    """The most partitions that were unavailable in a second of the slot."""


class Figures:
    """``add`` takes all events, ``stalled`` what the judge says of each partition's writes."""

    def __init__(self) -> None:
        self.kinds: set[type[Event]] = set()
        self.operations: Counter[tuple[str, str]] = Counter()
        """(operation, outcome): how many."""
        self.faults: list[Fault] = []
        self.machine_stalls: list[MachineStall] = []
        self.session_timeouts: list[SessionTimeout] = []
        self.seen: list[PartitionSeen | BrokerSeen] = []
        self.first, self.last = math.inf, -math.inf
        self._writes: dict[str, Counter[int]] = {}
        self._reads: dict[str, Counter[int]] = {}
        self._latencies: dict[int, Latencies] = {}
        self._unavailable: Counter[int] = Counter()

    def add(self, event: Event) -> None:
        self.kinds.add(type(event))
        match event:
            case Send():
                self._wrote(event, library_of(event.lane))
            case KeyedWrite():
                self._wrote(event, KEYED)
            case Poll():
                self.operations["poll", "ok"] += 1
                self._read(library_of(event.session), event.at, len(event.records))
            case FullRead():
                self.operations["full read", "ok"] += 1
                self._read(KEYED, event.ended, len(event.found))
            case TransactionalSend():
                self.operations["write in a transaction", event.outcome.value] += 1
            case TransactionEnd():
                self.operations["commit of a transaction" if event.commit else "abort", event.outcome.value] += 1
            case CommittedPoll():
                self.operations["poll with read_committed", "ok"] += 1
            case Fault() if event.effect is not Effect.OMITTED:
                self.faults.append(event)
            case MachineStall():
                self.machine_stalls.append(event)
            case SessionTimeout():
                self.session_timeouts.append(event)
            case PartitionSeen() | BrokerSeen():
                self.seen.append(event)
            case Asked():
                self.operations[_NAMES.get(type(event).__name__, type(event).__name__), event.outcome.value] += 1
                self._spans(event.begun, event.ended)

    def _spans(self, begun: float, ended: float) -> None:
        self.first, self.last = min(self.first, begun), max(self.last, ended)

    def _wrote(self, write: Send | KeyedWrite, library: str) -> None:
        self.operations["write", write.outcome.value] += 1
        self._spans(write.begun, write.ended)
        if write.outcome is not RequestOutcome.OK:
            return
        second = math.floor(write.ended)
        self._writes.setdefault(library, Counter())[second] += 1
        latencies = self._latencies.get(second)
        if latencies is None:
            latencies = self._latencies[second] = Latencies()
        latencies.add(write.ended - write.begun)

    def _read(self, library: str, at: float, records: int) -> None:
        self._spans(at, at)
        self._reads.setdefault(library, Counter())[math.floor(at)] += records

    def until(self, fault: Fault) -> float:
        """When it was mended; of one that never was, the end of the history."""
        return fault.mended if fault.mended < math.inf else max(fault.begun, self.last)

    def stalled(self, stalls: Iterable[Stall]) -> None:
        """A partition is unavailable in a second if writes to it with acks=all were under way throughout, and none was
        acknowledged."""
        for stall in stalls:
            for begun, ended in stall.waited:
                self._unavailable.update(range(math.ceil(begun), math.floor(ended)))

    def slots(self) -> Slots:
        """Of an empty history: no slots."""
        begun = math.floor(self.first) if self.first < math.inf else 0
        seconds = math.floor(self.last) + 1 - begun if self.first < math.inf else 0
        width = max(1, math.ceil(seconds / SLOTS))
        count = math.ceil(seconds / width)
        latencies = [Latencies() for _ in range(count)]
        for second, its in self._latencies.items():
            latencies[(second - begun) // width].join(its)
        unavailable = [0] * count
        for second, partitions in self._unavailable.items():
            at = (second - begun) // width
            unavailable[at] = max(unavailable[at], partitions)

        def rates(found: Mapping[str, Counter[int]]) -> dict[str, list[float]]:
            series = {name: [0.0] * count for name in sorted(found)}
            for name, seconds in found.items():
                for second, number in seconds.items():
                    series[name][(second - begun) // width] += number / width
            return series

        series: dict[str, list[float | None]] = {
            "p50": [one.percentile(0.5) if one.longest else None for one in latencies],
            "p99": [one.percentile(0.99) if one.longest else None for one in latencies],
            "max": [one.longest or None for one in latencies],
        }
        return Slots(begun, width, rates(self._writes), rates(self._reads), series, unavailable)


_NAMES: Final = {
    "Join": "join of a group",
    "Sync": "sync of a group",
    "MemberHeartbeat": "heartbeat",
    "OffsetCommit": "commit",
    "OffsetFetch": "fetch of an offset",
    "OffsetDelete": "deletion of an offset",
    "GroupDelete": "deletion of a group",
}


def library_of(name: str) -> str:
    """The client library that a lane or a session belongs to: ``LIBRARY/...``."""
    return name.partition("/")[0] if "/" in name else "clients"
