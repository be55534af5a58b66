"""Writes and reads of a register. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

Value: TypeAlias = tuple[int, str] | None
"""(offset, metadata), or None for no offset."""
EVER: Final = float("inf")


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """A write. If the outcome is unknown, ``ended`` is ``EVER`` and ``sure`` is false. An expiry begins when its commit
    is old enough, and has the end of that commit: it takes effect only if no write follows, so before any later
    write."""

    value: Value
    begun: float
    ended: float
    sure: bool
    node: str = ""

    def __str__(self) -> str:
        what = "the deletion" if self.value is None else f"{self.value[0]} ({self.value[1]!r})"
        return f"{what} of {self.begun:.3f} to {self.ended:.3f}"


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """A read. ``settled``: it began after all faults had ended, so it must see the newest value."""

    value: Value
    begun: float
    ended: float
    node: str = ""
    settled: bool = False
    excuse: float = EVER
    """The time from which the value may have been deleted, any number of times."""

    def __str__(self) -> str:
        what = "no offset" if self.value is None else f"{self.value[0]} ({self.value[1]!r})"
        return f"{what} was read from {self.begun:.3f} to {self.ended:.3f}{' in the end' if self.settled else ''}"
