"""What clients note while they run, and how long each went without an acknowledged write."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from milena.lab.histories.events import Event, RequestOutcome, Send, to_line


@dataclass(frozen=True)
class Fault:
    """What was done to which node, and when that began and was mended; seconds of the journal's clock."""

    kind: str
    node: int
    begun: float
    mended: float


class Journal:
    """A history that several threads write. ``now`` is its clock: seconds since it was made."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self.events: list[Event] = []
        self.faults: list[Fault] = []

    def now(self) -> float:
        return time.monotonic() - self._begun

    def since(self, moment: float) -> float:
        """A moment of ``time.monotonic`` in the journal's time."""
        return moment - self._begun

    def note(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)

    def write(self, file: Path) -> None:
        """As JSON, one event a line."""
        file.write_text("".join(to_line(event) + "\n" for event in self.events))

    def acknowledged(self, client: str) -> dict[str, list[float]]:
        """When a client's writes were acknowledged, in order, by lane. Lanes are ``client/partition``."""
        sends = (event for event in self.events if isinstance(event, Send) and event.outcome is RequestOutcome.OK)
        found: dict[str, list[float]] = {}
        for send in sends:
            if send.lane.startswith(f"{client}/"):
                found.setdefault(send.lane, []).append(send.ended)
        return {lane: sorted(times) for lane, times in found.items()}

    def report(self, clients: list[str], end: float) -> Iterator[str]:
        """For each fault and client the longest time that some partition went without an acknowledged write."""
        yield f"{'fault':<28} {'at':>6} " + " ".join(f"{client:>16}" for client in clients)
        begins = [fault.begun for fault in self.faults] + [end]
        times = {client: self.acknowledged(client) for client in clients}
        for fault, until in zip(self.faults, begins[1:], strict=True):
            longest = (
                max((_longest_gap(lane, fault.begun, until) for lane in times[client].values()), default=until)
                for client in clients
            )
            gaps = " ".join(f"{seconds:>14.2f} s" for seconds in longest)
            yield f"{fault.kind + ' ' + str(fault.node):<28} {fault.begun:>6.1f} {gaps}"


def _longest_gap(times: list[float], begin: float, end: float) -> float:
    inside = [begin, *(at for at in times if begin <= at <= end), end]
    return max(later - earlier for earlier, later in pairwise(inside))
