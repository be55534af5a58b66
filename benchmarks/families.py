"""A process and its descendants: a Spark driver in Python, its JVM and the Python workers. Linux alone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Member(NamedTuple):
    """``own``: seconds of processor time. ``waited``: those of children that have ended. ``peak``: resident MiB."""

    pid: int
    own: float
    waited: float
    peak: float


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
    _, _, tail = (folder / "stat").read_text().rpartition(")")
    fields = tail.split()
    user, system, users, systems = (int(field) / _TICKS for field in fields[11:15])
    lines = (folder / "status").read_text().splitlines()
    peak = next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0) / 1024
    return Member(int(folder.name), user + system, users + systems, peak), int(fields[1])


def seconds_of(members: Iterable[Member]) -> float:
    """Of a whole family, with those who have ended."""
    return sum(member.own + member.waited for member in members)


def peak_of(members: Iterable[Member]) -> float:
    """MiB, if each of them takes its most at once."""
    return sum(member.peak for member in members)
