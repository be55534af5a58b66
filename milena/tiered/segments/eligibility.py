"""Selects the local segments to copy to the tier (docs/kafka-semantics.md: Copy eligibility)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from milena.protocol.types import Offset


class CandidateSegment(NamedTuple):
    """A closed segment with offsets ``base`` (inclusive) to ``end`` (exclusive)."""

    base: Offset
    end: Offset


def candidates(bases: Sequence[Offset], *, copied: Offset, log_start: Offset, stable: Offset) -> list[CandidateSegment]:
    """Return the segments to copy, oldest first. ``bases``: base offsets of all local segments, the active one last.

    ``copied``: the last offset in the tier, -1 for none. A segment is eligible if the next one begins at or below the
    last stable offset: then all its records are committed, and no transaction is open in it.
    """
    if stable <= 0 or copied >= stable:
        return []
    begin = max(copied + 1, log_start)
    first = max(bisect_right(bases, begin) - 1, 0)
    found = []
    for index in range(first, len(bases) - 1):
        if bases[index + 1] > stable:
            break
        found.append(CandidateSegment(bases[index], bases[index + 1]))
    return found
