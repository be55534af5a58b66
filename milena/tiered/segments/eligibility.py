"""Selects the local segments to copy to the tier (docs/kafka-semantics.md: Copy eligibility)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple, Protocol

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


class CopyLag(NamedTuple):
    """``remote.copy.lag.ms`` and ``remote.copy.lag.bytes`` (KIP-1241): a segment is copied when it is that old, or when
    so many bytes follow it. If either is 0 it is copied at once; -1: this limit never applies."""

    ms: int
    bytes: int

    def is_reached(self, *, age_ms: int, bytes_after: int) -> bool:
        """``age_ms``: since the largest timestamp of the segment; below 0 if that is in the future, where the segment
        counts as old enough. ``bytes_after``: the size of all later local segments."""
        if self.ms == 0 or self.bytes == 0:
            return True
        if self.ms > 0 and (age_ms < 0 or age_ms >= self.ms):
            return True
        return 0 < self.bytes <= bytes_after


class LocalSegment(Protocol):
    """What the lag of a local segment depends on."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def largest_timestamp(self) -> int:
        """ms. May read the disk, so it is not called for the segments after one that is not due."""
        ...


def due(segments: Sequence[LocalSegment], lag: CopyLag, *, now_ms: int) -> int:
    """Return how many of the first segments have reached ``lag``. ``segments``: those to copy, oldest first, then all
    later local ones (``RemoteLogManager.RLMCopyTask.isEligibleForUpload``)."""
    left = sum(segment.size for segment in segments)

    def is_due(segment: LocalSegment) -> bool:
        nonlocal left
        left -= segment.size
        return lag.is_reached(age_ms=now_ms - segment.largest_timestamp(), bytes_after=left)

    return sum(1 for _ in takewhile(is_due, segments))
