"""The conditions under which retention deletes the oldest segments of a log (``UnifiedLog.deleteOldSegments``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from milena.protocol.types import Offset
from milena.storage.log.segment import Segment

Condition: TypeAlias = Callable[[Segment, Offset | None], bool]
"""Takes a segment and the base offset of the next one, None for the active segment."""


def below_start(start: Offset) -> Condition:
    return lambda _segment, next_base: next_base is not None and next_base <= start


def beyond_size(excess: int) -> Condition:
    def condition(segment: Segment, _next_base: Offset | None) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return condition


def too_old(now: int, retention_ms: int) -> Condition:
    return lambda segment, _next_base: now - segment.largest_timestamp() > retention_ms
