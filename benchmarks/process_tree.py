"""What a process and its descendants take, looked at again and again: what one has run, and the most that it had."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

TICKS: Final = os.sysconf("SC_CLK_TCK")


class Taken(NamedTuple):
    """``cpu``: seconds; ``mib``: the most resident memory."""

    cpu: float
    mib: float


def descendants(root: int) -> set[int]:
    """With ``root``."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(_stat(int(folder.name))[1])
        except OSError:
            continue  # it has just ended
    ours, waiting = set[int](), {root}
    while waiting:
        ours |= waiting
        waiting = {pid for pid, parent in parents.items() if parent in ours} - ours
    return ours


def with_ended_children(pid: int) -> float:
    """Seconds of processor time of a process and of those children that have ended, and for which it has waited."""
    return sum(map(int, _stat(pid)[11:15])) / TICKS


class ProcessTree:
    """Of a process and its descendants, by what they are (``kinds``)."""

    def __init__(self, root: int, kinds: Mapping[str, bytes]) -> None:
        """``kinds``: names, and what is in the command line of a process of this kind. Others are left out; the first
        kind that fits counts."""
        self._root = root
        self._kinds = kinds
        self._kind: dict[int, str] = {}
        self._taken: dict[int, Taken] = {}

    def look(self) -> None:
        for pid in descendants(self._root):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                cpu = sum(map(int, _stat(pid)[11:13])) / TICKS
                mib = most_resident_mib(pid)
            except OSError:
                continue
            kind = next((name for name, part in self._kinds.items() if part in command), None)
            if kind is not None:
                self._kind[pid], self._taken[pid] = kind, Taken(cpu, mib)

    def of(self, kind: str) -> Taken:
        """All processor time, and the memory of the largest."""
        every = [taken for pid, taken in self._taken.items() if self._kind[pid] == kind]
        return Taken(sum(one.cpu for one in every), max((one.mib for one in every), default=0.0))


def most_resident_mib(pid: int) -> float:
    """0 of one that has ended. Raises OSError."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0) / 1024


def _stat(pid: int) -> list[str]:
    """From the state on. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
