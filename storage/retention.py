"""Which old segments may go: by log start, by size, by time, in this order (kafka-behaviour A16).

A segment goes only below the high watermark, and never before an older one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from protocol.types import Offset
from storage.segment import Segment

if TYPE_CHECKING:
    from storage.partition_log import PartitionLog

Condition: TypeAlias = Callable[[Segment, Offset | None], bool]
"""Takes a segment and the base of the next one, None for the active segment."""


def delete_old_segments(log: PartitionLog, now: int) -> int:
    """Delete what the topic's configuration lets go at ``now`` (ms); the number of segments. Raises OSError."""
    deleted = _delete(log, _below_log_start(log), "log start offset")
    config = log.config
    if "delete" in config.cleanup_policy:
        if 0 <= config.retention_bytes <= log.size:
            deleted += _delete(log, _beyond_size(log.size - config.retention_bytes), "retention.bytes")
        if config.retention_ms >= 0:
            deleted += _delete(log, _too_old(now, config.retention_ms), "retention.ms")
    return deleted


def _below_log_start(log: PartitionLog) -> Condition:
    return lambda _segment, next_base: next_base is not None and next_base <= log.log_start_offset


def _beyond_size(excess: int) -> Condition:
    def condition(segment: Segment, _next_base: Offset | None) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return condition


def _too_old(now: int, retention_ms: int) -> Condition:
    return lambda segment, _next_base: now - segment.largest_timestamp() > retention_ms


def deletable(log: PartitionLog, condition: Condition) -> int:
    """How many of the oldest segments may go. An empty active segment stays."""
    segments = log.segments
    for index, segment in enumerate(segments):
        is_active = index + 1 == len(segments)
        upper = segments.end_of(index, log.log_end_offset)
        if (
            log.high_watermark < upper
            or not condition(segment, None if is_active else upper)
            or (is_active and not segment.size)
        ):
            return index
    return len(segments)


def _delete(log: PartitionLog, condition: Condition, reason: str) -> int:
    count = deletable(log, condition)
    if not count:
        return 0
    if count == len(log.segments):
        log.roll()
    last = log.segments[count - 1]
    start = log.segments.end_of(count - 1, log.log_end_offset)
    log.context.events.info(
        "segments deleted", topic=log.topic, partition=log.partition, count=count, last=last.base_offset, reason=reason
    )
    log.increment_log_start(start)
    log.drop(log.segments.take_first(count))
    return count
