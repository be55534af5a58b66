"""The log of one partition: append, read, truncation and retention, like Kafka's ``UnifiedLog``
(docs/kafka-semantics.md: Produce, Idempotence, Leader epoch cache, Truncation by followers, Local retention).

A log has one owner, which calls it on the loop. A worker may open a log and run a flush. An error of the disk takes the
directory offline and is raised as KafkaError KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from milena.config.topic_config import TopicConfig
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    BatchView,
    CorruptBatch,
    single_batch,
    split_batches,
)
from milena.protocol.records.validation import LogValidator, Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.disk import Bytes
from milena.storage.files.checkpoints import encode_partition_metadata
from milena.storage.files.end_marker import read_end_marker
from milena.storage.files.names import PARTITION_METADATA
from milena.storage.files.txn_index import AbortedTxn
from milena.storage.log.batch_scan import pieces_of
from milena.storage.log.context import may_be_tiered
from milena.storage.log.flush import SYNCED_FIRST
from milena.storage.log.guard import guarded
from milena.storage.log.log_reads import LogReads
from milena.storage.log.recovery import replay_producers
from milena.storage.log.retention import Condition, below_start, beyond_size, too_old
from milena.storage.log.segment import Segment
from milena.storage.state.epoch_cache import EpochEntry
from milena.storage.state.producer_state import NO_GUARD, EndMarker, KeptBatch, VerificationGuard


class AppendInfo(NamedTuple):
    """The result of an append. Timestamps are ms, -1 for none."""

    first_offset: Offset
    last_offset: Offset
    max_timestamp: int
    log_append_time: int
    """The broker's time for topics with LogAppendTime, else -1; for a duplicate, the time of the original batch."""
    log_start_offset: Offset
    size: int
    """Bytes written, 0 for a duplicate."""
    duplicate: bool = False
    """Whether the batch was appended before, and nothing was written now."""


class UnifiedLog(LogReads):
    """One log, created by ``storage.log.loading``."""

    __slots__ = ()

    @property
    def remote_copy_enabled(self) -> bool:
        """Whether segments are copied to the tier: ``local.retention.*`` then applies to this disk, and ``retention.*``
        to the tier."""
        return self.remote_enabled and not self.config.remote_log_copy_disable

    def update_config(self, config: TopicConfig) -> None:
        """Apply a changed configuration of the topic."""
        self.config = config
        self.remote_enabled = may_be_tiered(self.context, self.topic, config)

    @guarded
    def assign_topic_id(self, topic_id: UUID) -> None:
        """Write the topic id to ``partition.metadata``, which had none. Raises KafkaError."""
        path = f"{self.folder}/{PARTITION_METADATA}"
        self.context.disk.write_atomic(path, encode_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id
        self.id_is_synced = False
        self.must_sync(path)

    # Append

    @guarded
    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: LeaderEpoch,
        origin: Origin = Origin.CLIENT,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Check ``records``, assign offsets and ``leader_epoch`` in place, and append them: one batch, or any number
        with origin RAFT. ``guard``: that of the verification, for the first batch of a transaction.
        ``transaction_version``: that of a marker's transaction.

        Raises KafkaError with Kafka's code (InvalidRecords if single records are refused), and appends nothing then.
        """
        if origin is not Origin.RAFT:
            begun = self.begin_append(records, leader_epoch, origin, guard, transaction_version)
            if isinstance(begun, AppendInfo):
                return begun
            begun.finish()
            return self._append_validated(begun, leader_epoch, guard, transaction_version)
        batches = split_batches(records)
        offset = self.log_end_offset
        for batch in batches:
            _check_crc(batch)
            batch.assign(offset, leader_epoch)
            offset = batch.next_offset
        return self._append_batches(records, batches, leads=True)

    @guarded
    def begin_append(
        self,
        records: memoryview,
        leader_epoch: LeaderEpoch,
        origin: Origin,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = 0,
    ) -> AppendInfo | LogValidator:
        """Append one batch of a client or coordinator if its check is short. Otherwise return the unfinished validator,
        for ``append_validated``. Raises KafkaError."""
        batch = single_batch(records)
        now, partition = self.context.clock.time_ms(), (self.topic, self.partition)
        validator = LogValidator(batch, self.config, origin, now=now, partition=partition)
        if not validator.is_finished:
            return validator
        return self._append_validated(validator, leader_epoch, guard, transaction_version)

    @guarded
    def append_validated(
        self,
        validator: LogValidator,
        leader_epoch: LeaderEpoch,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append the batch of ``validator``, which is finished and was made for this log and its current ``config``.

        Raises KafkaError, and appends nothing then, unless the sync after the write has failed.
        """
        return self._append_validated(validator, leader_epoch, guard, transaction_version)

    def _append_validated(
        self, validator: LogValidator, leader_epoch: LeaderEpoch, guard: VerificationGuard, transaction_version: int
    ) -> AppendInfo:
        batch = validator.batch
        first, now = self._log_end, self.context.clock.time_ms()
        validator.assign(first, leader_epoch, now)
        # As in Kafka, before the state of the producer: also a duplicate is refused.
        size = len(batch.memory)
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes do not fit into a segment: segment.bytes is {self.config.segment_bytes}",
            )
        marker = None
        of_producer = batch.has_producer_id
        if of_producer:
            if batch.is_control:
                marker = read_end_marker(batch)
                if marker is not None:
                    self.producers.check_marker(marker, transaction_version)
            else:
                sequenced = validator.origin is Origin.CLIENT
                # A retry of a batch that is already in the log returns its offsets.
                if sequenced and (kept := self.producers.duplicate_of(batch)) is not None:
                    return self._duplicate(kept)
                verified = self.context.verifies_transactions
                self.producers.check_batch(batch, sequenced=sequenced, guard=guard, verified=verified)
        self._write(batch.memory, (batch,), now, leads=True)
        if of_producer:
            self._update_producer(batch, marker)
        return AppendInfo(
            first, batch.last_offset, batch.max_timestamp, validator.log_append_time, self._log_start, size
        )

    @guarded
    def append_as_follower(self, records: memoryview, *, leader_epoch: LeaderEpoch | None = None) -> AppendInfo:
        """Append the leader's batches unchanged. An incomplete batch at the end is skipped.

        ``leader_epoch``: the leader epoch of this follower; the first batch of a later epoch and all batches after it
        are skipped. Raises KafkaError: CORRUPT_MESSAGE, or UNKNOWN_SERVER_ERROR for offsets out of order.
        """
        accepted: list[BatchView] = []
        next_offset = self.log_end_offset
        for batch in split_batches(records):
            # Records of a later epoch may diverge from this log: they are fetched again in that epoch.
            if leader_epoch is not None and batch.leader_epoch > leader_epoch:
                break
            if batch.base_offset < next_offset or batch.last_offset_delta < 0:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{self.topic}-{self.partition}: a batch at {batch.base_offset}, "
                    f"where {next_offset} is the next offset",
                )
            _check_crc(batch)
            accepted.append(batch)
            next_offset = batch.next_offset
        return self._append_batches(records, accepted, leads=False)

    def _append_batches(self, records: memoryview, batches: Sequence[BatchView], *, leads: bool) -> AppendInfo:
        """Append ``batches``, whose offsets and epochs are assigned. ``records``: the same batches as bytes."""
        end = self.log_end_offset
        if not batches:
            return AppendInfo(end, Offset(end - 1), NO_TIMESTAMP, NO_TIMESTAMP, self.log_start_offset, 0)
        now = self.context.clock.time_ms()
        position = 0
        for piece, size in pieces_of(batches, self.config.segment_bytes):
            self.check_append_begins(piece[0].base_offset)
            self._write(records[position : position + size], piece, now, leads=leads)
            position += size
            for batch in piece:
                if batch.has_producer_id:
                    self._update_producer(batch, read_end_marker(batch) if batch.is_control else None)
        newest = max(batch.max_timestamp for batch in batches)
        first, last = Offset(batches[0].base_offset), batches[-1].last_offset
        return AppendInfo(first, last, newest, NO_TIMESTAMP, self.log_start_offset, position)

    def _write(self, data: Bytes, batches: Sequence[BatchView], now: int, *, leads: bool) -> None:
        """Roll if necessary, update the leader epochs, write ``data``, and advance the log end offset."""
        config = self.config
        last = batches[-1]
        segment = self.segments.active
        if segment.must_roll(
            size=len(data),
            last_offset=last.last_offset,
            max_timestamp=last.max_timestamp if len(batches) == 1 else max(batch.max_timestamp for batch in batches),
            now=now,
            config=config,
        ):
            segment = self.roll(Offset(batches[0].base_offset))
        epochs = self.epochs
        epoch = NO_LEADER_EPOCH
        for batch in batches:
            epoch = batch.leader_epoch
            if epoch != epochs.latest and epoch >= 0:  # the first batch of a new leader
                self.begin_epoch(epoch, Offset(batch.base_offset), leads=leads)
        # Before the write, so that the log file never has an epoch or a topic that the other files lack.
        if epochs.dirty:
            self.save_epochs()
        if not self.id_is_synced:
            self.sync_topic_id()
        segment.append(data, batches, config.index_interval_bytes)
        self.appended(last.next_offset, epoch)
        self._flush_if_due()

    def _flush_if_due(self) -> None:
        """Flush after ``flush.messages`` records; start a background sync for ``SYNCED_FIRST`` topics."""
        if self.unflushed >= self.config.flush_messages:
            self.flush()
        elif self.topic in SYNCED_FIRST:
            self.context.sync_soon(self)

    def _update_producer(self, batch: BatchView, marker: EndMarker | None) -> None:
        """Apply an appended batch to the producer state. ``marker``: the one in a control batch."""
        state = self.producers
        if not batch.is_control:
            state.add_batch(batch)
        elif marker is not None and (completed := state.end_txn(marker)) is not None and completed.aborted:
            self.add_aborted(
                AbortedTxn(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    state.stable_offset_after(completed),
                )
            )

    def _duplicate(self, kept: KeptBatch) -> AppendInfo:
        """Return the result for a batch that is already in the log. It may not be synced, if the first sync failed."""
        self._flush_if_due()
        return AppendInfo(
            kept.first_offset, kept.last_offset, kept.timestamp, kept.timestamp, self._log_start, 0, duplicate=True
        )

    # Truncate

    @guarded
    def truncate_to(self, offset: Offset) -> bool:
        """Remove the batches that end at ``offset`` or later, and the epochs that begin there, so that the leader's
        records from there on can be appended. Returns False if there are no such batches.

        Raises ValueError below zero, and KafkaError: CORRUPT_MESSAGE, after which nothing has changed, or
        KAFKA_STORAGE_ERROR, also if the remaining log is damaged and goes offline.
        """
        if offset < 0:
            raise ValueError(f"{self} cannot be truncated to {offset}")
        if offset >= self.log_end_offset:
            # Nothing to truncate but the epoch of a leader that wrote no record, which begins at the log end.
            self.epochs.truncate_from_end(self.log_end_offset)
            self.save_epochs()
            return False
        if offset < self.high_watermark:
            self.context.events.warning(
                "truncating below the high watermark",
                topic=self.topic,
                partition=self.partition,
                offset=offset,
                high_watermark=self.high_watermark,
            )
        if offset < self.segments[0].base_offset:
            # Nothing local remains. Records in the tier and their epochs still belong to the log.
            if self.remote_enabled:
                epochs = [entry for entry in self.epochs.entries if entry.start < offset]
                start = min(self.log_start_offset, offset)
                self.truncate_fully_and_start_at(offset, log_start=start, epochs=epochs)
            else:
                self.truncate_fully_and_start_at(offset)
            return True
        end = self.segments[self.segments.floor_index(offset)].end_before(offset)  # raises before anything is changed
        self.begin_truncation()
        self.drop(self.segments.take_beyond(offset))
        self.segments.active.truncate_to(end)
        self.cut_to(end.offset)
        self.epochs.truncate_from_end(end.offset)
        self.save_epochs()
        try:
            self._reload_producers()
        except CorruptBatch as error:
            raise self.damaged(f"the producers before {end.offset} cannot be read: {error}") from error
        self.truncated()
        if self.segments.active.next_offset() < self.log_end_offset:
            self.roll()  # compaction has removed the last records: an empty segment keeps the log end over a restart
        return True

    @guarded
    def truncate_fully_and_start_at(
        self,
        offset: Offset,
        *,
        log_start: Offset | None = None,
        epochs: Iterable[EpochEntry] = (),
        producers: bytes | None = None,
    ) -> None:
        """Remove all local records; the next record gets ``offset``. ``log_start``: the log start, if it is in the
        tier. ``epochs`` and ``producers`` (a snapshot) belong to the earlier records in the tier. They are written
        before the new segment.

        Raises CorruptSnapshot, and KafkaError: OFFSET_OUT_OF_RANGE, before any change, if ``log_start`` is above
        ``offset``.
        """
        start = offset if log_start is None else log_start
        if not 0 <= start <= offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self} cannot continue at {offset}, log start {start}")
        self.begin_truncation()
        # The order matters if the process ends in between: epochs and producers must exist before the new segment.
        self.epochs.replace(epochs)
        self.epochs.truncate_from_start(start)
        self.save_epochs()
        self.drop(self.segments.take_from(0))
        self.producers.clear()
        self.producer_files.remove_all(self.folder)
        if producers is not None:
            self.producer_files.adopt(self.folder, producers, offset)
            self.producer_files.load(self.folder, self.producers, upto=offset, log_start=offset)
        self.segments.add(Segment.create(self.context, self.folder, offset, self.config))
        self.folder_changed()
        self.restart_at(offset, log_start=start)
        self.truncated()

    def _reload_producers(self) -> None:
        """Load the producer state at the new log end: from the last snapshot before it, and the batches after that."""
        files, folder, end = self.producer_files, self.folder, self._log_end
        files.keep_within(folder, self._log_start, end)
        start = files.load(folder, self.producers, upto=end, log_start=self._log_start)
        replay_producers(self.segments, self.producers, start, end)
        snapshot = files.take(folder, self.producers, end)
        if snapshot is not None:
            self.must_sync(snapshot)

    @guarded
    def increment_log_start(self, offset: Offset) -> bool:
        """Increase the log start offset to ``offset``. Returns False if it is not lower than that.

        Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.move_start(offset)
        self.epochs.truncate_from_start(offset)
        self.save_epochs()
        self.producer_files.log_start_moved(offset)
        self.context.start_moved(self)
        return True

    def update_log_start_from_remote_tier(self, offset: Offset) -> bool:
        """Increase the log start offset to ``offset``, the first one in the tier. Returns False if it is not lower than
        that, or the log is not tiered.

        Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark.
        """
        return self.remote_enabled and self.increment_log_start(offset)

    @guarded
    def take_epochs(self, other: UnifiedLog) -> None:
        """Take over all epochs of ``other``, of which this log is a copy: epochs without records are not in the batches
        (KAFKA-15608). Raises KafkaError."""
        self.epochs.clear()
        for epoch, start in other.epochs.entries:
            self.epochs.assign(epoch, start)
        self.save_epochs()

    # Retention

    @guarded
    def delete_old_segments(self, now: int) -> int:
        """Delete the segments that retention allows to delete at ``now`` (ms): by log start offset, then by size, then
        by time. Returns their number. Raises KafkaError.

        A segment is deleted only below the high watermark, and only after all earlier ones. If the log is tiered, the
        segment must have been copied, ``local.retention.*`` applies, and the log start offset is not changed, since it
        is in the tier.
        """
        start = self.local_log_start_offset if self.remote_enabled else self.log_start_offset
        deleted = self._delete_oldest(below_start(start), "log start offset")
        config, copied = self.config, self.remote_copy_enabled
        if copied or "delete" in config.cleanup_policy:
            size, age = (
                (config.local_bytes, config.local_ms) if copied else (config.retention_bytes, config.retention_ms)
            )
            prefix = "local." if copied else ""
            if 0 <= size <= self.size:
                deleted += self._delete_oldest(beyond_size(self.size - size), f"{prefix}retention.bytes")
            if age >= 0:
                deleted += self._delete_oldest(too_old(now, age), f"{prefix}retention.ms")
        return deleted

    def _delete_oldest(self, condition: Condition, reason: str) -> int:
        """Delete the oldest segments for which ``condition`` holds; returns their number."""
        count, active_waits = self._deletable(condition)
        if active_waits or count == len(self.segments):
            self.roll()
        if not count:
            return 0
        last = self.segments[count - 1]
        start = self.segments.end_of(count - 1, self.log_end_offset)
        self.context.events.info(
            "segments deleted",
            topic=self.topic,
            partition=self.partition,
            count=count,
            last=last.base_offset,
            reason=reason,
        )
        if self.remote_copy_enabled:
            self.move_local_start(start)
        else:
            self.increment_log_start(start)
        self.drop(self.segments.take_first(count))
        return count

    def _deletable(self, condition: Condition) -> _Deletable:
        """Count the oldest segments for which ``condition`` holds. An empty active segment is kept."""
        segments, copied = self.segments, self.remote_copy_enabled
        for index, segment in enumerate(segments):
            is_active = index + 1 == len(segments)
            upper = segments.end_of(index, self.log_end_offset)
            if (
                self.high_watermark < upper
                or not condition(segment, None if is_active else upper)
                or (is_active and not segment.size)
            ):
                return _Deletable(index, False)
            uncopied = copied and self.highest_offset_in_remote_storage < upper - 1
            if uncopied and (is_active or self.log_start_offset < upper):
                return _Deletable(index, is_active)
        return _Deletable(len(segments), False)


class _Deletable(NamedTuple):
    """The number of oldest segments that may be deleted, and whether the active one must be rolled to be copied
    first."""

    segments: int
    active_waits: bool


def _check_crc(batch: BatchView) -> None:
    """Raise KafkaError CORRUPT_MESSAGE if the checksum of ``batch`` is wrong."""
    if not batch.is_valid:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"the checksum of the batch at {batch.base_offset} is not {batch.crc}"
        )
