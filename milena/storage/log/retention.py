"""Retention: which old segments are deleted, by log start, then by size, then by time (docs/kafka-semantics.md: Local
retention).

A segment is deleted only below the high watermark, and never before an older one. If the log is tiered, the segment
must have been copied first, ``local.retention.*`` applies, and the log start offset stays, since it is in the tier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from milena.protocol.types import Offset
from milena.storage.log.segment import Segment
from milena.storage.log.tiering import is_copied
from milena.storage.log.truncation import increment_start

if TYPE_CHECKING:
    from milena.storage.log.local_log import LocalLog

Condition: TypeAlias = Callable[[Segment, Offset | None], bool]
"""Takes a segment and the base of the next one, None for the active segment."""


class _Found(NamedTuple):
    """How many of the oldest segments may be deleted; and whether the active one could be, but must be copied first."""

    deletable: int
    active_waits: bool


def delete_old_segments(log: LocalLog, now: int) -> int:
    """Delete the segments that the topic's configuration allows to delete at ``now`` (ms); returns their number. Raises
    OSError."""
    deleted = _delete(log, _below_start(log), "log start offset")
    config, copied = log.config, is_copied(log)
    if copied or "delete" in config.cleanup_policy:
        size, age = (config.local_bytes, config.local_ms) if copied else (config.retention_bytes, config.retention_ms)
        prefix = "local." if copied else ""
        if 0 <= size <= log.size:
            deleted += _delete(log, _beyond_size(log.size - size), f"{prefix}retention.bytes")
        if age >= 0:
            deleted += _delete(log, _too_old(now, age), f"{prefix}retention.ms")
    return deleted


def _below_start(log: LocalLog) -> Condition:
    start = log.local_log_start_offset if log.remote_enabled else log.log_start_offset
    return lambda _segment, next_base: next_base is not None and next_base <= start


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


def _find(log: LocalLog, condition: Condition) -> _Found:
    """An empty active segment stays."""
    segments, copied = log.segments, is_copied(log)
    for index, segment in enumerate(segments):
        is_active = index + 1 == len(segments)
        upper = segments.end_of(index, log.log_end_offset)
        if (
            log.high_watermark < upper
            or not condition(segment, None if is_active else upper)
            or (is_active and not segment.size)
        ):
            return _Found(index, False)
        if copied and log.highest_offset_in_remote_storage < upper - 1 and (is_active or log.log_start_offset < upper):
            return _Found(index, is_active)
    return _Found(len(segments), False)


def _delete(log: LocalLog, condition: Condition, reason: str) -> int:
    count, active_waits = _find(log, condition)
    if active_waits or count == len(log.segments):
        log.roll()
    if not count:
        return 0
    last = log.segments[count - 1]
    start = log.segments.end_of(count - 1, log.log_end_offset)
    log.context.events.info(
        "segments deleted", topic=log.topic, partition=log.partition, count=count, last=last.base_offset, reason=reason
    )
    if is_copied(log):
        log.move_local_start(start)
    else:
        increment_start(log, start)
    log.drop(log.segments.take_first(count))
    return count
