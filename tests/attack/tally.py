"""Counts of requests and answers of an attack, and the resources of a node before and after."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milena.protocol.errors import ErrorCode
from tests.wire.memory import MIB, descriptors, resident

SHOWN_CODES = 6


@dataclass(slots=True)
class Tally:
    """Counts of one attack. ``waiting``: requests with neither an answer nor a closed connection in time."""

    name: str
    sent: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    closed: int = 0
    waiting: int = 0
    unreadable: list[str] = field(default_factory=list)
    """Answers that are invalid for their API. Each one is a fault."""

    @property
    def answered(self) -> int:
        return self.codes.total()


@dataclass(frozen=True, slots=True)
class Vital:
    """The resources of a process, from the kernel."""

    memory: int
    descriptors: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> Vital:
        return cls(resident(pid), descriptors(pid), len(os.listdir(f"/proc/{pid}/task")))

    def __str__(self) -> str:
        return f"{self.memory / MIB:.0f} MiB, {self.descriptors} descriptors, {self.threads} threads"


def errors_in(response: Any) -> set[str]:
    """The names of all error codes in a response; NONE if there is no other."""
    found: set[str] = set()
    _collect(response, found)
    return found - {"NONE"} or {"NONE"}


def _collect(value: Any, found: set[str]) -> None:
    if isinstance(value, tuple | list):
        for item in value:
            _collect(item, found)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            item = getattr(value, name)
            if name == "error_code":
                found.add(_name(int(item)))
            else:
                _collect(item, found)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"code {code}"


def failures_logged(log: Path, since: int = 0) -> list[str]:
    """Lines of a node's log, from position ``since``, about unexpected errors."""
    with log.open("rb") as file:
        file.seek(since)
        lines = file.read().decode(errors="replace").splitlines()
    signs = ("Traceback", "request failed", "broken invariant", '"level": "critical"', "task failed")
    return [line[:300] for line in lines if any(sign in line for sign in signs)]


def table(rows: Iterable[Sequence[str]]) -> str:
    """Returns the rows as a table with aligned columns."""
    lines = [tuple(row) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def rows(tallies: Iterable[Tally]) -> list[tuple[str, ...]]:
    out: list[tuple[str, ...]] = [("attack", "sent", "answered", "closed", "waiting", "most frequent codes")]
    for one in tallies:
        codes = ", ".join(f"{name} {count}" for name, count in one.codes.most_common(SHOWN_CODES))
        out.append((one.name, f"{one.sent}", f"{one.answered}", f"{one.closed}", f"{one.waiting}", codes))
    return out
