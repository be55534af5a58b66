"""CPU time and peak memory of a process and its descendants, by sampling."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.families import family, member, seconds_of


class Taken(NamedTuple):
    """``cpu``: seconds; ``mib``: peak resident memory."""

    cpu: float
    mib: float


def with_ended_children(pid: int) -> float:
    """CPU seconds of a process and of its ended children for which it has waited."""
    return seconds_of([member(pid)])


class ProcessTree:
    """Figures of a process and its descendants, by kind (``kinds``)."""

    def __init__(self, root: int, kinds: Mapping[str, bytes]) -> None:
        """``kinds``: names, and a text in the command line of such a process. Other processes are left out; the first
        matching kind counts."""
        self._root = root
        self._kinds = kinds
        self._kind: dict[int, str] = {}
        self._taken: dict[int, Taken] = {}

    def look(self) -> None:
        for one in family(self._root):
            try:
                command = Path(f"/proc/{one.pid}/cmdline").read_bytes()
            except OSError:
                continue
            kind = next((name for name, part in self._kinds.items() if part in command), None)
            if kind is not None:
                self._kind[one.pid], self._taken[one.pid] = kind, Taken(one.own, one.peak)

    def of(self, kind: str) -> Taken:
        """The whole CPU time, and the memory of the largest process."""
        every = [taken for pid, taken in self._taken.items() if self._kind[pid] == kind]
        return Taken(sum(one.cpu for one in every), max((one.mib for one in every), default=0.0))
