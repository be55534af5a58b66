"""What a process and its descendants take, looked at again and again: what one has run, and the most that it had."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.families import family, member, seconds_of


class Taken(NamedTuple):
    """``cpu``: seconds; ``mib``: the most resident memory."""

    cpu: float
    mib: float


def with_ended_children(pid: int) -> float:
    """Seconds of processor time of a process and of those children that have ended, and for which it has waited."""
    return seconds_of([member(pid)])


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
        for one in family(self._root):
            try:
                command = Path(f"/proc/{one.pid}/cmdline").read_bytes()
            except OSError:
                continue
            kind = next((name for name, part in self._kinds.items() if part in command), None)
            if kind is not None:
                self._kind[one.pid], self._taken[one.pid] = kind, Taken(one.own, one.peak)

    def of(self, kind: str) -> Taken:
        """All processor time, and the memory of the largest."""
        every = [taken for pid, taken in self._taken.items() if self._kind[pid] == kind]
        return Taken(sum(one.cpu for one in every), max((one.mib for one in every), default=0.0))
