"""Which part of a log may be cleaned, like ``LogCleanerManager.cleanableOffsets``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from milena.protocol.types import Offset

if TYPE_CHECKING:
    from milena.storage.log.unified_log import UnifiedLog


class Cleanable(NamedTuple):
    """Records in ``[first_dirty, end)`` were not cleaned yet and may be; both are equal if there are none."""

    first_dirty: Offset
    end: Offset
    """Where a segment begins, if it is greater than ``first_dirty``: later segments are not touched."""
    checkpoint_is_wrong: bool
    """Whether the first dirty offset is another than the checkpoint's."""


def cleanable(log: UnifiedLog, *, cleaned_to: Offset | None, replicated_to: Offset | None, now: int) -> Cleanable:
    """``cleaned_to``: the log's first dirty offset in ``cleaner-offset-checkpoint``, ``replicated_to``: its high
    watermark in ``replication-offset-checkpoint``, None if it is not in there. ``now``: ms.

    Unlike in Kafka, the high watermark on disk is a bound, too, and what is synced: this log loses no record, by a
    truncation after a crash or a loss of power, that others were removed for. Nothing is cleaned without them.
    """
    start = log.log_start_offset
    wrong = cleaned_to is not None and not start <= cleaned_to <= log.log_end_offset
    first_dirty = start if cleaned_to is None or wrong else cleaned_to
    if replicated_to is None:
        return Cleanable(first_dirty, first_dirty, wrong)
    bound = min(log.last_stable_offset, replicated_to, log.recovery_point, log.segments.active.base_offset)
    end = log.segments[max(log.segments.floor_index(bound), 0)].base_offset
    lag = log.config.min_compaction_lag_ms
    if lag > 0:
        for segment in log.segments.since(first_dirty):
            if segment.base_offset >= end:
                break
            if segment.largest_timestamp() > now - lag:
                end = segment.base_offset
    return Cleanable(first_dirty, max(first_dirty, end), wrong)
