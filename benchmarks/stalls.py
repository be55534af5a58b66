"""How long one request holds the event loop of a node, as other clients notice it.

A bystander sends heartbeats and small fetches one after the other, each on a connection of its own. The CPU time that
the node's loop uses between the send of a small request and its response is the longest time for which the loop ran
something else, plus the small request. Other work of the machine does not change it. Linux updates the CPU time of a
running thread at each tick of the kernel (1 to 4 ms), so it is as exact as that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple

from benchmarks.wire import Wire

AFTERWARDS: Final = 1.0
"""Seconds after the response for which stalls are still attributed to the request: new topics get their logs."""
PAUSE: Final = 0.0005
"""Seconds between two small requests."""


class Small(NamedTuple):
    """A small request of the bystander."""

    name: str
    framed: bytes


class Stall(NamedTuple):
    """``cpu_ms``: the most CPU time of the loop during one small request. ``waits_ms``: the longest time until the
    response to each of the small requests."""

    cpu_ms: float
    waits_ms: tuple[float, ...]


class Watched(NamedTuple):
    """A node: its listener, its process, and small requests that it answers."""

    address: tuple[str, int]
    pid: int
    smalls: Sequence[Small]


def worst(stalls: Sequence[Stall]) -> Stall:
    return Stall(
        max(one.cpu_ms for one in stalls), tuple(map(max, zip(*(one.waits_ms for one in stalls), strict=True)))
    )


class Bystander:
    """Measures from the entry of its context to the end."""

    def __init__(self, node: Watched) -> None:
        self._node = node
        self._schedstat = Path(f"/proc/{node.pid}/task/{node.pid}/schedstat")
        self._over = Event()
        self._began = Event()
        self._failure: Exception | None = None
        self.stall = Stall(0.0, tuple(0.0 for _ in node.smalls))
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Bystander:
        self._thread.start()
        self._began.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with closing(Wire(self._node.address)) as first, closing(Wire(self._node.address)) as second:
                wires = (first, second)
                for wire, small in zip(wires, self._node.smalls, strict=False):
                    self._measure(wire, small)
                self._began.set()
                while not self._over.is_set():
                    found = [self._measure(wire, small) for wire, small in zip(wires, self._node.smalls, strict=False)]
                    one = Stall(max(cpu for cpu, _ in found), tuple(wait for _, wait in found))
                    self.stall = worst((self.stall, one))
                    time.sleep(PAUSE)
        except Exception as failure:
            self._failure = failure
        finally:
            self._began.set()

    def _measure(self, wire: Wire, small: Small) -> tuple[float, float]:
        """Return the CPU time of the loop and the time that passed (ms)."""
        cpu, began = self._cpu_ms(), time.perf_counter()
        wire.send_framed(small.framed)
        wire.receive()
        return self._cpu_ms() - cpu, 1000 * (time.perf_counter() - began)

    def _cpu_ms(self) -> float:
        """The event loop runs in the main thread."""
        return int(self._schedstat.read_text().split()[0]) / 1e6


def measured(act: Callable[[], None], nodes: Sequence[Watched]) -> list[Stall]:
    """Run ``act`` and return what bystanders notice, by node."""
    bystanders = [Bystander(node) for node in nodes]
    for one in bystanders:
        one.__enter__()
    try:
        act()
        time.sleep(AFTERWARDS)
    finally:
        for one in bystanders:
            one.__exit__()
    return [one.stall for one in bystanders]
