"""A process and its descendants: a Spark driver in Python, its JVM and the Python workers. Linux alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

INTERVAL: Final = 0.5
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Member(NamedTuple):
    """``own``: seconds of processor time. ``waited``: those of children that have ended. ``peak``: resident MiB."""

    pid: int
    name: str
    own: float
    waited: float
    peak: float

    @property
    def is_java(self) -> bool:
        return self.name == "java"


def family(root: int) -> list[Member]:
    """The process first. What ends meanwhile is left out."""
    parents: dict[int, int] = {}
    found: dict[int, Member] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            member, parent = _member(folder)
        except (OSError, ValueError):
            continue
        parents[member.pid], found[member.pid] = parent, member
    ours: list[int] = []
    waiting = [root]
    while waiting:
        ours += waiting
        waiting = [pid for pid, parent in parents.items() if parent in waiting]
    return [found[pid] for pid in ours if pid in found]


def _member(folder: Path) -> tuple[Member, int]:
    """And the id of its parent."""
    head, _, tail = (folder / "stat").read_text().rpartition(")")
    fields = tail.split()
    user, system, users, systems = (int(field) / _TICKS for field in fields[11:15])
    lines = (folder / "status").read_text().splitlines()
    peak = next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0) / 1024
    return Member(int(folder.name), head.partition("(")[2], user + system, users + systems, peak), int(fields[1])


def member(pid: int) -> Member:
    """Raises OSError if there is no such process any more."""
    return _member(Path(f"/proc/{pid}"))[0]


def seconds_of(members: Iterable[Member]) -> float:
    """Of a whole family, with those who have ended."""
    return sum(member.own + member.waited for member in members)


def peak_of(members: Iterable[Member]) -> float:
    """MiB, if each of them takes its most at once."""
    return sum(member.peak for member in members)


class Watch:
    """Looks at a family twice a second, in a ``with``."""

    def __init__(self, root: int) -> None:
        self.root_mib = self.jvm_mib = self.workers_mib = 0.0
        """The most of the process itself, of its JVM, and of the others together."""
        self._root = root
        self._own: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """Processor time of all, when they were last seen."""
        return sum(self._own.values())

    def _look(self) -> None:
        while not self._ended.wait(INTERVAL):
            members = family(self._root)
            self._own |= {member.pid: member.own for member in members}
            others = [member for member in members if member.pid != self._root]
            self.root_mib = max(self.root_mib, peak_of(member for member in members if member.pid == self._root))
            self.jvm_mib = max(self.jvm_mib, peak_of(member for member in others if member.is_java))
            self.workers_mib = max(self.workers_mib, peak_of(member for member in others if not member.is_java))
