"""The offsets of a compacted partition, over all keys: they tell what a later write of a key covers up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

Claim: TypeAlias = tuple[int, str, str | None]
"""Offset, key and value of a record that was acknowledged or read."""


class Acknowledged(NamedTuple):
    """A write."""

    offset: int
    begun: float
    ended: float
    key: str
    value: str | None


def conflicts(claims: Iterable[Claim]) -> Iterator[str]:
    """A sentence for each offset that has two records."""
    there: dict[int, tuple[str, str | None]] = {}
    told: set[Claim] = set()
    for offset, key, value in claims:
        first = there.setdefault(offset, (key, value))
        if first != (key, value) and (offset, key, value) not in told:
            told.add((offset, key, value))
            yield f"{first[1]} of {first[0]} and {value} of {key} were at {offset}"


def falls(acknowledged: Iterable[Acknowledged]) -> Iterator[str]:
    """A sentence for each write below one that had been acknowledged before it began."""
    first: Acknowledged | None = None
    for write in sorted(acknowledged, key=lambda write: write.offset, reverse=True):
        if first is not None and first.ended < write.begun:
            yield (
                f"{write.value} of {write.key} is at {write.offset}, and {first.value} of {first.key}, acknowledged "
                f"before it was sent, at {first.offset}"
            )
        if first is None or write.ended < first.ended:
            first = write
