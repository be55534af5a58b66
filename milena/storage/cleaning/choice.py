"""Selects the logs to clean and their order, like ``LogCleanerManager.grabFilthiestCompactedLog``.

A log is cleaned if more than ``min.cleanable.dirty.ratio`` of it is dirty, or if it has waited longer than
``max.compaction.lag.ms``. The log with the highest dirty ratio is cleaned first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from milena.storage.cleaning.bounds import Cleanable, cleanable
from milena.storage.log.unified_log import UnifiedLog

NEVER: Final = (1 << 63) - 1
"""The value of ``max.compaction.lag.ms`` that sets no limit."""


class Dirtiness(NamedTuple):
    """How dirty a log is. Sizes are bytes; a segment that is partly dirty counts in both."""

    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """Time (ms) since the oldest dirty segment exceeded ``max.compaction.lag.ms``; 0 if it has not."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, least_ratio: float) -> bool:
        """Whether the log is to be cleaned. ``least_ratio``: ``min.cleanable.dirty.ratio``."""
        return bool(self.overdue_ms and self.cleanable_bytes) or self.ratio > least_ratio


class Candidate(NamedTuple):
    """A log with closed segments."""

    log: UnifiedLog
    cleanable: Cleanable
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int

    @property
    def dirtiness(self) -> Dirtiness:
        return Dirtiness(self.clean_bytes, self.cleanable_bytes, self.overdue_ms)

    @property
    def dirty_ratio(self) -> float:
        return self.dirtiness.ratio

    @property
    def is_due(self) -> bool:
        return self.dirtiness.is_due(self.log.config.min_cleanable_dirty_ratio)


def candidate(log: UnifiedLog, now: int) -> Candidate:
    """Measure how dirty ``log`` is at ``now`` (ms). Raises CorruptBatch, CorruptIndex, OSError."""
    offsets = cleanable(log, cleaned_to=log.cleaned_to, replicated_to=log.checkpointed_high_watermark, now=now)
    segments = list(log.segments)
    dirty_from = max(log.segments.floor_index(min(offsets.first_dirty, offsets.end)), 0)
    return Candidate(
        log,
        offsets,
        sum(segment.size for segment in segments if segment.base_offset < offsets.first_dirty),
        sum(segment.size for segment in segments[dirty_from:] if segment.base_offset < offsets.end)
        if offsets.first_dirty < offsets.end
        else 0,
        _overdue(log, offsets, now),
    )


def _overdue(log: UnifiedLog, offsets: Cleanable, now: int) -> int:
    lag = log.config.max_compaction_lag_ms
    if lag >= NEVER:
        return 0
    closed = log.segments.since(offsets.first_dirty)[:-1]
    times = [time for segment in closed if segment.size and (time := segment.first_timestamp()) > 0]
    return max(now - lag - min(times), 0) if times else 0


def dirtiest_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that are due, in descending order of their dirty ratio."""
    return sorted((one for one in candidates if one.is_due), key=lambda one: one.dirty_ratio, reverse=True)
