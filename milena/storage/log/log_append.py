"""Appending to a log, as its leader or as a follower (docs/kafka-semantics.md: Produce, Idempotence, Truncation by
followers)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import NO_LEADER_EPOCH, NO_TIMESTAMP, BatchView, TimestampType
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.disk import Bytes
from milena.storage.files.end_marker import read_end_marker
from milena.storage.files.txn_index import AbortedTxn
from milena.storage.log.append_info import AppendInfo, MalformedRecords, Origin
from milena.storage.log.flush import SYNCED_FIRST
from milena.storage.log.validation import LOG_APPEND_TIME, Steps, split_batches, validation
from milena.storage.state.producer_state import EndMarker, KeptBatch

if TYPE_CHECKING:
    from milena.config.topic_config import TopicConfig
    from milena.storage.log.local_log import LocalLog


class AppendCheck:
    """The one batch of a client or coordinator on its way into a log, checked step by step.

    ``config`` is the log's configuration when the check began. If the log has another one at the end, check again.
    """

    __slots__ = ("_steps", "batch", "config", "origin")

    def __init__(self, config: TopicConfig, origin: Origin, batch: BatchView, steps: Steps) -> None:
        self.config = config
        self.origin = origin
        self.batch = batch
        """The batch to store, once the check is finished."""
        self._steps = steps

    def advance(self) -> int | None:
        """Do a little work; returns roughly how many records were checked, or None if the check is finished. Raises
        KafkaError if the batch is refused."""
        try:
            return next(self._steps)
        except StopIteration as done:
            self.batch = done.value
            return None

    def finish(self) -> AppendCheck:
        """Run the check to its end. Raises KafkaError."""
        while self.advance() is not None:
            pass
        return self


Begun: TypeAlias = AppendInfo | AppendCheck
"""The result of the append; or the check that must be finished first."""


def append_or_check(log: LocalLog, records: memoryview, origin: Origin, leader_epoch: LeaderEpoch) -> Begun:
    """Append one batch if its check is little work; else return the check, unfinished. Raises KafkaError, OSError, and
    writes nothing in that case, unless the sync after the write has failed."""
    batches = split_batches(records)
    if len(batches) != 1:
        raise MalformedRecords(
            ErrorCode.INVALID_RECORD, f"exactly one record batch is expected, there are {len(batches)}"
        )
    batch, config = batches[0], log.config
    now = log.context.clock.time_ms()
    checked = validation(log, batch, origin, now)
    if isinstance(checked, BatchView):
        return _append_one(log, checked, origin, leader_epoch, now)
    return AppendCheck(config, origin, batch, checked)


def append_one(log: LocalLog, records: memoryview, origin: Origin, leader_epoch: LeaderEpoch) -> AppendInfo:
    """Check one batch completely and append it. Raises KafkaError, OSError, and writes nothing in that case."""
    begun = append_or_check(log, records, origin, leader_epoch)
    return begun if isinstance(begun, AppendInfo) else append_checked(log, begun.finish(), leader_epoch)


def append_checked(log: LocalLog, check: AppendCheck, leader_epoch: LeaderEpoch) -> AppendInfo:
    """Append the checked batch. Raises KafkaError, OSError, and writes nothing in that case."""
    return _append_one(log, check.batch, check.origin, leader_epoch, log.context.clock.time_ms())


def _append_one(log: LocalLog, batch: BatchView, origin: Origin, leader_epoch: LeaderEpoch, now: int) -> AppendInfo:
    by_broker = log.config.message_timestamp_type == LOG_APPEND_TIME
    marker = None
    size = len(batch.memory)
    of_producer = batch.has_producer_id
    if of_producer:
        if batch.is_control:
            marker = read_end_marker(batch)
            if marker is not None:
                log.producers.check_marker(marker)
        else:
            if origin is Origin.CLIENT and (kept := log.producers.duplicate_of(batch)) is not None:
                return _repeated(log, kept)
            log.producers.check_batch(batch, sequenced=origin is Origin.CLIENT)
    if size > log.config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{size} bytes do not fit into a segment: segment.bytes is {log.config.segment_bytes}",
        )
    if by_broker:
        batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, now)
    first = log.log_end_offset
    batch.assign(first, leader_epoch)
    if marker is not None:
        marker = marker._replace(offset=first)
    _write(log, batch.memory, (batch,), now, leads=True)
    if of_producer:
        _note_producer(log, batch, marker)
    return AppendInfo(
        first,
        batch.last_offset,
        batch.max_timestamp,
        batch.max_timestamp if by_broker else NO_TIMESTAMP,
        log.log_start_offset,
        size,
    )


def append_raft(log: LocalLog, records: memoryview, leader_epoch: LeaderEpoch) -> AppendInfo:
    """Append the controller's batches, which get their offsets and epoch here. Raises KafkaError, OSError."""
    batches = split_batches(records)
    offset = log.log_end_offset
    for batch in batches:
        _check_crc(batch)
        batch.assign(offset, leader_epoch)
        offset = batch.next_offset
    return _append_all(log, records, batches, leads=True)


def append_fetched(log: LocalLog, records: memoryview, leader_epoch: LeaderEpoch | None) -> AppendInfo:
    """Append a leader's batches unchanged. A batch of an epoch above ``leader_epoch`` and all batches after it are left
    out.

    Raises KafkaError (CORRUPT_MESSAGE; UNKNOWN_SERVER_ERROR for offsets out of order), OSError.
    """
    accepted: list[BatchView] = []
    next_offset = log.log_end_offset
    for batch in split_batches(records):
        if leader_epoch is not None and batch.leader_epoch > leader_epoch:
            break
        if batch.base_offset < next_offset or batch.last_offset_delta < 0:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{log.topic}-{log.partition}: a batch at {batch.base_offset}, where {next_offset} is the next offset",
            )
        _check_crc(batch)
        accepted.append(batch)
        next_offset = batch.next_offset
    return _append_all(log, records, accepted, leads=False)


def _append_all(log: LocalLog, records: memoryview, batches: Sequence[BatchView], *, leads: bool) -> AppendInfo:
    end = log.log_end_offset
    if not batches:
        return AppendInfo(end, Offset(end - 1), NO_TIMESTAMP, NO_TIMESTAMP, log.log_start_offset, 0)
    now = log.context.clock.time_ms()
    position = 0
    for piece, size in _pieces(batches, log.config.segment_bytes):
        log.begins_append(piece[0].base_offset)
        _write(log, records[position : position + size], piece, now, leads=leads)
        position += size
        for batch in piece:
            if batch.has_producer_id:
                _note_producer(log, batch, read_end_marker(batch) if batch.is_control else None)
    newest = max(batch.max_timestamp for batch in batches)
    first, last = Offset(batches[0].base_offset), batches[-1].last_offset
    return AppendInfo(first, last, newest, NO_TIMESTAMP, log.log_start_offset, position)


def _pieces(batches: Sequence[BatchView], limit: int) -> Iterator[tuple[Sequence[BatchView], int]]:
    """Groups of batches, with their bytes, that fit into a segment; at least one batch each."""
    start = size = 0
    for index, batch in enumerate(batches):
        if index > start and size + batch.size_in_bytes > limit:
            yield batches[start:index], size
            start, size = index, 0
        size += batch.size_in_bytes
    yield batches[start:], size


def _repeated(log: LocalLog, kept: KeptBatch) -> AppendInfo:
    """The result for a batch that is already in the log, but perhaps not synced: the first sync may have failed."""
    _flush_if_due(log)
    return AppendInfo(
        kept.first_offset, kept.last_offset, kept.timestamp, kept.timestamp, log.log_start_offset, 0, duplicate=True
    )


def _check_crc(batch: BatchView) -> None:
    if not batch.is_valid:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"the checksum of the batch at {batch.base_offset} is not {batch.crc}"
        )


def _write(log: LocalLog, data: Bytes, batches: Sequence[BatchView], now: int, *, leads: bool) -> None:
    """Roll if necessary, write, and move the log end offset."""
    config = log.config
    last = batches[-1]
    segment = log.segments.active
    if segment.must_roll(
        size=len(data),
        last_offset=last.last_offset,
        max_timestamp=last.max_timestamp if len(batches) == 1 else max(batch.max_timestamp for batch in batches),
        now=now,
        config=config,
    ):
        segment = log.roll(Offset(batches[0].base_offset))
    epochs = log.epochs
    epoch = NO_LEADER_EPOCH
    for batch in batches:
        epoch = batch.leader_epoch
        if epoch != epochs.latest and epoch >= 0:
            log.begin_epoch(epoch, Offset(batch.base_offset), leads=leads)
    if epochs.dirty:
        log.save_epochs()
    if not log.id_is_synced:
        log.sync_topic_id()
    segment.append(data, batches, config.index_interval_bytes)
    log.appended(last.next_offset, epoch)
    _flush_if_due(log)


def _flush_if_due(log: LocalLog) -> None:
    if log.unflushed >= log.config.flush_messages:
        log.flush()
    elif log.topic in SYNCED_FIRST:
        log.context.sync_soon(log)


def _note_producer(log: LocalLog, batch: BatchView, marker: EndMarker | None) -> None:
    state = log.producers
    if not batch.is_control:
        state.add_batch(batch)
    elif marker is not None and (completed := state.end_txn(marker)) is not None and completed.aborted:
        log.add_aborted(
            AbortedTxn(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                state.stable_offset_after(completed),
            )
        )
