"""The processor time of a run's own processes: nodes and clients that the runner has started, and their children.

Nodes in containers are no descendants of the runner, so their processor time is not included.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
TICKS: Final = os.sysconf("SC_CLK_TCK")
"""The unit of the times in ``/proc/PID/stat``, per second."""
PARENT, USER, SYSTEM = 1, 11, 12
"""Positions of fields in ``/proc/PID/stat`` behind the name of the process."""


class Usage(NamedTuple):
    """``seconds``: of processor time, in user and in system mode."""

    parent: int
    seconds: float


class Descendants:
    """Measures the processor time of the descendants of process ``pid``. Where there is no ``/proc`` it is 0."""

    def __init__(self, pid: int, proc: Path = PROC) -> None:
        self._pid = pid
        self._proc = proc
        self._known: dict[int, float] = {}
        """Processor time of each descendant at the last look."""
        self.look()

    def used(self) -> float:
        """Return the processor seconds that the known descendants have used since the last call of any method. A
        process that has ended since then counts as idle."""
        used = 0.0
        for pid, before in list(self._known.items()):
            usage = self._usage(pid)
            if usage is None:
                del self._known[pid]
            else:
                used += max(0.0, usage.seconds - before)
                self._known[pid] = usage.seconds
        return used

    def look(self) -> None:
        """Search for descendants. A new one counts from now on."""
        usages = dict(self._usages())
        found = {pid: usage.seconds for pid, usage in usages.items() if self._descends(pid, usages)}
        self._known = {pid: self._known.get(pid, seconds) for pid, seconds in found.items()}

    def _descends(self, pid: int, usages: Mapping[int, Usage]) -> bool:
        while pid in usages:
            pid = usages[pid].parent
            if pid == self._pid:
                return True
        return False

    def _usages(self) -> Iterator[tuple[int, Usage]]:
        with suppress(OSError):
            for name in os.listdir(self._proc):
                if name.isdecimal() and (usage := self._usage(int(name))) is not None:
                    yield int(name), usage

    def _usage(self, pid: int) -> Usage | None:
        """None if there is no such process."""
        try:
            text = (self._proc / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        fields = text.rpartition(")")[2].split()
        return Usage(int(fields[PARENT]), (int(fields[USER]) + int(fields[SYSTEM])) / TICKS)
