"""Finds items that occur more than once, in one pass."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

H = TypeVar("H", bound=Hashable)


def repeated_in(items: Iterable[H]) -> set[H]:
    """Return each item that occurs at least twice."""
    seen: set[H] = set()
    repeated: set[H] = set()
    for item in items:
        (repeated if item in seen else seen).add(item)
    return repeated
