"""What stands more than once in a request, found in one pass."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

H = TypeVar("H", bound=Hashable)


def repeated_in(items: Iterable[H]) -> set[H]:
    """Each item that occurs at least twice."""
    seen: set[H] = set()
    twice: set[H] = set()
    for item in items:
        (twice if item in seen else seen).add(item)
    return twice
