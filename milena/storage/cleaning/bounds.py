"""Which part of a log may be cleaned, like ``LogCleanerManager.cleanableOffsets``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from milena.protocol.types import Offset

if TYPE_CHECKING:
    from milena.storage.log.unified_log import UnifiedLog


class Cleanable(NamedTuple):
    """The offset range ``[first_dirty, end)`` that is dirty and may be cleaned; empty if both are equal."""

    first_dirty: Offset
    end: Offset
    """The first uncleanable offset. If it is greater than ``first_dirty``, it is the base offset of a segment."""
    checkpoint_is_wrong: bool
    """Whether the first dirty offset of the checkpoint is not within the log."""


def cleanable(log: UnifiedLog, *, cleaned_to: Offset | None, replicated_to: Offset | None, now: int) -> Cleanable:
    """Return the range of offsets that may be cleaned.

    ``cleaned_to``: the log's first dirty offset in ``cleaner-offset-checkpoint``. ``replicated_to``: its high watermark
    in ``replication-offset-checkpoint``. Both are None if the checkpoint does not list the log. ``now``: ms.

    Unlike in Kafka, the high watermark on disk and the recovery point are upper bounds, too. A record above them may be
    lost in a truncation after a crash or a power failure; older records with its key must still be there then.
    """
    start = log.log_start_offset
    wrong = cleaned_to is not None and not start <= cleaned_to <= log.log_end_offset
    first_dirty = start if cleaned_to is None or wrong else cleaned_to
    if replicated_to is None:  # the high watermark is not on disk yet: no record is safe
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
