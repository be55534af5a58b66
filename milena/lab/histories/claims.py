"""Checks the offsets of a compacted partition over all keys. This finds lost writes that a later write of the same key
hides from the checks of single keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

Claim: TypeAlias = tuple[int, str, str | None]
"""Offset, key and value of a record that was acknowledged or read."""


class Acknowledged(NamedTuple):
    """An acknowledged write."""

    offset: int
    begun: float
    ended: float
    key: str
    value: str | None


def conflicts(claims: Iterable[Claim]) -> Iterator[str]:
    """Yield a description of each offset with two records."""
    records: dict[int, tuple[str, str | None]] = {}
    reported: set[Claim] = set()
    for offset, key, value in claims:
        first = records.setdefault(offset, (key, value))
        if first != (key, value) and (offset, key, value) not in reported:
            reported.add((offset, key, value))
            yield f"{first[1]} of {first[0]} and {value} of {key} were at {offset}"


def order_violations(acknowledged: Iterable[Acknowledged]) -> Iterator[str]:
    """Yield a description of each write at a lower offset than one that had been acknowledged before it began."""
    first: Acknowledged | None = None
    for write in sorted(acknowledged, key=lambda write: write.offset, reverse=True):
        if first is not None and first.ended < write.begun:
            yield (
                f"{write.value} of {write.key} is at {write.offset}, and {first.value} of {first.key}, acknowledged "
                f"before it was sent, at {first.offset}"
            )
        if first is None or write.ended < first.ended:
            first = write
