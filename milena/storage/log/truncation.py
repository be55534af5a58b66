"""Cutting a log at its end or its start (docs/kafka-semantics.md: Leader epoch cache, Truncation by followers)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import Offset
from milena.storage.log.replay import replay_producers
from milena.storage.log.segment import Segment
from milena.storage.state.epoch_cache import EpochEntry

if TYPE_CHECKING:
    from milena.storage.log.partition_log import PartitionLog


def truncate_to(log: PartitionLog, offset: Offset) -> bool:
    """Remove the batches that end in ``offset`` or later, so that what the leader sends from there can be appended.

    Raises ValueError below zero, CorruptBatch, OSError.
    """
    if offset < 0:
        raise ValueError(f"{log} cannot be truncated to {offset}")
    if offset >= log.log_end_offset:
        # The epoch of a leader that wrote nothing begins at the log's end, and goes.
        log.epochs.truncate_from_end(log.log_end_offset)
        log.save_epochs()
        return False
    if offset < log.high_watermark:
        log.context.events.warning(
            "truncating below the high watermark",
            topic=log.topic,
            partition=log.partition,
            offset=offset,
            high_watermark=log.high_watermark,
        )
    if offset < log.segments[0].base_offset:
        # What is in the tier still belongs to the log, as far as the epochs say.
        if log.remote_enabled:
            start_over(log, offset, min(log.log_start_offset, offset), epochs=_before(log, offset))
        else:
            start_over(log, offset, None)
        return True
    log.truncations += 1
    log.drop(log.segments.take_beyond(offset))
    offset = log.segments.active.truncate_to(offset)
    log.log_end_offset = offset
    log.log_start_offset = min(log.log_start_offset, offset)
    log.local_log_start_offset = min(log.local_log_start_offset, offset)
    _forget_copied(log, offset)
    log.epochs.truncate_from_end(offset)
    log.save_epochs()
    _reload_producers(log)
    _lower_bounds(log)
    return True


def start_over(
    log: PartitionLog,
    offset: Offset,
    log_start: Offset | None,
    *,
    epochs: Iterable[EpochEntry] = (),
    producers: bytes | None = None,
) -> None:
    """Remove everything local; the log goes on at ``offset``. ``epochs`` and ``producers`` (a snapshot) are those of
    what is in the tier before it: they are on the disk before the new segment is. Raises CorruptSnapshot, OSError.
    """
    log.truncations += 1
    log.log_start_offset = offset if log_start is None else log_start
    log.epochs.replace(epochs)
    log.epochs.truncate_from_start(log.log_start_offset)
    log.save_epochs()
    log.drop(log.segments.take_from(0))
    log.producers.clear()
    log.producer_files.remove_all(log.folder)
    if producers is not None:
        log.producer_files.adopt(log.folder, producers, offset)
        log.producer_files.load(log.folder, log.producers, upto=offset, log_start=offset)
    log.segments.add(Segment.create(log.context, log.folder, offset, log.config))
    log.folder_changed = True
    log.log_end_offset = log.local_log_start_offset = offset
    _forget_copied(log, offset)
    _lower_bounds(log)


def _before(log: PartitionLog, offset: Offset) -> list[EpochEntry]:
    return [entry for entry in log.epochs.entries if entry.start < offset]


def increment_start(log: PartitionLog, offset: Offset) -> bool:
    """Move the start of the log up to ``offset``; False where it is there already. Raises KafkaError, OSError."""
    if offset > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the high watermark {log.high_watermark}"
        )
    if offset <= log.log_start_offset:
        return False
    move_start(log, offset)
    return True


def move_start(log: PartitionLog, offset: Offset) -> None:
    """The records before ``offset`` are no longer part of the log. Raises OSError."""
    log.log_start_offset = offset
    log.local_log_start_offset = max(log.local_log_start_offset, offset)
    log.recovery_point = max(log.recovery_point, offset)
    log.epochs.truncate_from_start(offset)
    log.save_epochs()
    log.producer_files.log_start_moved(offset)
    log.context.start_moved(log)


def _reload_producers(log: PartitionLog) -> None:
    """As of the new end: the newest snapshot before it, and the batches since."""
    log.producer_files.keep_within(log.folder, log.log_start_offset, log.log_end_offset)
    start = log.producer_files.load(log.folder, log.producers, upto=log.log_end_offset, log_start=log.log_start_offset)
    replay_producers(log.segments, log.producers, start, log.log_end_offset)
    snapshot = log.producer_files.take(log.folder, log.producers, log.log_end_offset)
    if snapshot is not None:
        log.must_sync(snapshot)


def _forget_copied(log: PartitionLog, offset: Offset) -> None:
    """What comes at ``offset`` now may be another record than the one in the tier."""
    log.highest_offset_in_remote_storage = min(log.highest_offset_in_remote_storage, Offset(offset - 1))


def _lower_bounds(log: PartitionLog) -> None:
    log.set_high_watermark(log.high_watermark)
    if log.recovery_point > log.log_end_offset:
        log.recovery_point = log.log_end_offset
        log.recovery_point_lowered_by = log.truncations  # until a checkpoint of as many truncations is on the disk
        log.context.truncated()
