"""Measures whether the machine of a run is overloaded: how late its timers fire, and its load.

A timer is late by the time between the moment it is due and the moment the event loop runs it, without the processor
time that the run itself used in between: its own work is no stall. Client libraries and the runner share the loop and
need the processor about as much as a node does, so nodes that do not get the processor are late by similar times.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from milena.client.cluster import ClusterView
from milena.lab.chaos.journal import Journal
from milena.lab.chaos.processor_time import Descendants
from milena.lab.histories.machine import MachineStall, MachineStalls, SessionTimeout

TICK: Final = 0.05
"""Seconds between two timers."""
TOLERANCE: Final = 0.01
"""Seconds by which a timer may be late on a quiet machine."""
WINDOW: Final = 5.0
LIMIT: Final = 1.0
"""The machine stalls while timers of the last ``WINDOW`` seconds were late by at least so many seconds in all."""
LOOKING: Final = 5
"""Timers between two searches for new processes of the run."""


class Detector:
    """Finds stalls in the lateness of timers. ``session``: seconds without a heartbeat after which a session expires.
    ``recovers``: seconds that the cluster takes to recover from expired sessions; ``slack``: seconds that it takes to
    recover from a stall that is too short for that."""

    def __init__(self, session: float, recovers: float, slack: float) -> None:
        self._session = session
        self._recovers = recovers
        self._slack = slack
        self._late: deque[tuple[float, float]] = deque()
        self._sum = 0.0
        self._begun: float | None = None
        self._seconds = 0.0
        self._load = 0.0

    def add(self, now: float, late: float, load: float) -> MachineStall | None:
        """Take one timer that fired ``late`` seconds too late, at ``now``. Return a stall when it has ended."""
        while self._late and self._late[0][0] < now - WINDOW:
            self._sum -= self._late.popleft()[1]
        late = max(0.0, late - TOLERANCE)
        self._late.append((now, late))
        self._sum += late
        if self._sum >= LIMIT:
            if self._begun is None:
                at, first = next(one for one in self._late if one[1] > 0)
                self._begun, self._seconds, self._load = at - first, self._sum, load
            else:
                self._seconds += late
            self._load = max(self._load, load)
            return None
        return self.end(now)

    def end(self, now: float) -> MachineStall | None:
        """Return the stall that lasted until now, if there is one."""
        if self._begun is None:
            return None
        recovers = self._recovers if self._seconds >= self._session else self._slack
        stall = MachineStall(max(0.0, self._begun), now, self._seconds, self._load, recovers)
        self._begun = None
        return stall


def lateness(passed: float, own: float, others: float, processors: int) -> float:
    """Return the seconds by which a timer of ``TICK`` seconds that fired after ``passed`` seconds was delayed by other
    programs. ``own``: processor seconds of the runner, which block its loop. ``others``: processor seconds of the other
    processes of the run. They can use all processors at once: a timer that is late only because nodes did so is not
    late."""
    return passed - TICK - own - others / processors


class Machine:
    """Notes stalls and unexplained session timeouts in the history of a run."""

    def __init__(self, detector: Detector, journal: Journal) -> None:
        self._detector = detector
        self._journal = journal
        self._stalls = MachineStalls()
        self._listed: dict[int, bool] = {}

    def excuses(self, now: float) -> float:
        """Return the seconds of the stalls that explain a lack of progress at ``now``: the cluster may still be
        recovering from them. A stall before these explains nothing."""
        return self._stalls.seconds_within(now, now)

    async def watch_timers(self) -> None:
        """Until it is cancelled."""
        nodes, processors = Descendants(os.getpid()), len(os.sched_getaffinity(0))
        try:
            for number in itertools.count():
                if number % LOOKING == 0:
                    nodes.look()
                begun, used = time.monotonic(), time.process_time()
                await asyncio.sleep(TICK)
                passed, own = time.monotonic() - begun, time.process_time() - used
                late = lateness(passed, own, nodes.used(), processors)
                self._note(self._detector.add(self._journal.now(), late, os.getloadavg()[0]))
        finally:
            self._note(self._detector.end(self._journal.now()))

    def _note(self, stall: MachineStall | None) -> None:
        if stall is not None:
            self._stalls.add(stall)
            self._journal.note(stall)
            self._journal.tell(f"the machine stalled: timers were {stall.seconds:.1f} s late; load {stall.load:.1f}")

    def look_at_sessions(
        self, views: Sequence[ClusterView], brokers: Sequence[int], explained: Collection[int]
    ) -> None:
        """Note the brokers that are no longer listed by the others. ``explained``: those with a fault that explains
        it."""
        for broker in brokers if views else ():
            was, self._listed[broker] = self._listed.get(broker, True), all(broker in view.brokers for view in views)
            if was and not self._listed[broker] and broker not in explained:
                self._journal.note(SessionTimeout(broker, self._journal.now()))
                self._journal.tell(f"the session of broker {broker} timed out, and no fault explains it")
