"""Truncates a log at its end, and moves its start (docs/kafka-semantics.md: Leader epoch cache, Truncation by
followers)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import Offset
from milena.storage.log.replay import replay_producers
from milena.storage.log.segment import Segment
from milena.storage.state.epoch_cache import EpochEntry

if TYPE_CHECKING:
    from milena.storage.log.local_log import LocalLog


def truncate_to(log: LocalLog, offset: Offset) -> bool:
    """Remove the batches that end at ``offset`` or later, so that the leader's records from there on can be appended.

    Raises ValueError below zero; CorruptBatch, changing nothing; OSError; and KafkaError KAFKA_STORAGE_ERROR if the
    remaining log is damaged, which ends it.
    """
    if offset < 0:
        raise ValueError(f"{log} cannot be truncated to {offset}")
    if offset >= log.log_end_offset:
        # The epoch of a leader that wrote nothing begins at the log end, and is removed.
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
        # Records in the tier still belong to the log, as far as the epochs say.
        if log.remote_enabled:
            start_over(log, offset, min(log.log_start_offset, offset), epochs=_before(log, offset))
        else:
            start_over(log, offset, None)
        return True
    end = log.segments[log.segments.floor_index(offset)].end_before(offset)  # changes nothing if it is damaged
    log.begin_truncation()
    log.drop(log.segments.take_beyond(offset))
    log.segments.active.truncate_to(end)
    log.cut_to(end.offset)
    log.epochs.truncate_from_end(end.offset)
    log.save_epochs()
    try:
        _reload_producers(log)
    except CorruptBatch as error:
        raise log.damaged(f"the producers before {end.offset} cannot be read: {error}") from error
    log.truncated()
    if log.segments.active.next_offset() < log.log_end_offset:
        log.roll()  # compaction has removed what was last: after a restart, the next segment tells where the log ends
    return True


def start_over(
    log: LocalLog,
    offset: Offset,
    log_start: Offset | None,
    *,
    epochs: Iterable[EpochEntry] = (),
    producers: bytes | None = None,
) -> None:
    """Remove everything local; the log continues at ``offset``. ``epochs`` and ``producers`` (a snapshot) are those of
    the earlier records in the tier, and are on disk before the new segment is. Raises CorruptSnapshot, OSError, and
    KafkaError OFFSET_OUT_OF_RANGE, changing nothing, if ``log_start`` is above ``offset``.
    """
    start = offset if log_start is None else log_start
    if not 0 <= start <= offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{log} cannot go on at {offset} and start at {start}")
    log.begin_truncation()
    log.epochs.replace(epochs)
    log.epochs.truncate_from_start(start)
    log.save_epochs()
    log.drop(log.segments.take_from(0))
    log.producers.clear()
    log.producer_files.remove_all(log.folder)
    if producers is not None:
        log.producer_files.adopt(log.folder, producers, offset)
        log.producer_files.load(log.folder, log.producers, upto=offset, log_start=offset)
    log.segments.add(Segment.create(log.context, log.folder, offset, log.config))
    log.folder_changed()
    log.restart_at(offset, log_start=start)
    log.truncated()


def _before(log: LocalLog, offset: Offset) -> list[EpochEntry]:
    return [entry for entry in log.epochs.entries if entry.start < offset]


def increment_start(log: LocalLog, offset: Offset) -> bool:
    """Move the log start up to ``offset``; False if it is already there. Raises KafkaError, OSError."""
    if offset > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the high watermark {log.high_watermark}"
        )
    if offset <= log.log_start_offset:
        return False
    log.move_start(offset)
    log.epochs.truncate_from_start(offset)
    log.save_epochs()
    log.producer_files.log_start_moved(offset)
    log.context.start_moved(log)
    return True


def _reload_producers(log: LocalLog) -> None:
    """Load the producers at the new end: from the newest snapshot before it, and the batches since."""
    log.producer_files.keep_within(log.folder, log.log_start_offset, log.log_end_offset)
    start = log.producer_files.load(log.folder, log.producers, upto=log.log_end_offset, log_start=log.log_start_offset)
    replay_producers(log.segments, log.producers, start, log.log_end_offset)
    snapshot = log.producer_files.take(log.folder, log.producers, log.log_end_offset)
    if snapshot is not None:
        log.must_sync(snapshot)
