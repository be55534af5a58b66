"""The log of one partition: appending, reading, cutting, and the offsets that bound all of it.

::

    log start <= local log start <= recovery point <= log end,   log start <= high watermark <= log end

A log has one owner, which calls it on the loop; ``open`` and the ``run`` of a flush may happen in a worker. Errors of
the disk take its whole directory offline and come out as KafkaError KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from milena.config.topic_config import TopicConfig
from milena.protocol.records.batch import FIRST_OFFSET
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.clock import Clock
from milena.runtime.disk import Disk
from milena.storage.files.checkpoints import encode_epochs, encode_partition_metadata
from milena.storage.files.names import EPOCHS, OFFSET_INDEX, PARTITION_METADATA, TIME_INDEX, TXN_INDEX
from milena.storage.files.txn_index import AbortedTxn
from milena.storage.log import log_append, log_search, retention, truncation
from milena.storage.log.append_info import AppendInfo, Origin
from milena.storage.log.context import LogContext
from milena.storage.log.flush import FlushPlan, plan_of
from milena.storage.log.guard import guarded
from milena.storage.log.log_append import AppendCheck, Begun
from milena.storage.log.log_read import LogSlice, aborted_between, find_slice
from milena.storage.log.log_search import TimedRecord
from milena.storage.log.producer_files import ProducerFiles
from milena.storage.log.segment import Segment
from milena.storage.log.segments import Segments
from milena.storage.log.tiering import may_be_tiered
from milena.storage.state.epoch_cache import LeaderEpochCache
from milena.storage.state.producer_state import ProducerState


class PartitionLog:
    """Made by ``storage.log.loading.open_log``, or ``open`` for a log outside of a LogManager."""

    __slots__ = (
        "_unsynced",
        "checkpointed_truncations",
        "config",
        "context",
        "epochs",
        "folder",
        "folder_changed",
        "high_watermark",
        "highest_offset_in_remote_storage",
        "last_flush_ms",
        "local_log_start_offset",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producer_files",
        "producers",
        "recovery_point",
        "recovery_point_lowered_by",
        "remote_enabled",
        "retired",
        "segments",
        "topic",
        "topic_id",
        "truncations",
    )

    def __init__(
        self,
        context: LogContext,
        folder: str,
        topic: str,
        partition: int,
        topic_id: UUID | None,
        config: TopicConfig,
        segments: Segments,
        epochs: LeaderEpochCache,
        producers: ProducerState,
        producer_files: ProducerFiles,
        *,
        log_start: Offset,
        log_end: Offset,
        recovery_point: Offset,
    ) -> None:
        self.context = context
        self.folder = folder
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.producer_files = producer_files
        self.log_start_offset = log_start
        self.local_log_start_offset = max(log_start, segments[0].base_offset)
        self.log_end_offset = log_end
        self.high_watermark = self.local_log_start_offset
        self.recovery_point = max(recovery_point, log_start)
        self.last_flush_ms = context.clock.time_ms()
        self.truncations = 0
        self.recovery_point_lowered_by = self.checkpointed_truncations = 0
        self.retired = False
        self.folder_changed = False
        self._unsynced: set[str] | None = None
        self.highest_offset_in_remote_storage = Offset(-1)
        self.remote_enabled = may_be_tiered(context, topic, config)

    @classmethod
    def open(
        cls,
        disk: Disk,
        clock: Clock,
        folder: str,
        topic: str,
        partition: int,
        topic_id: UUID | None,
        config: TopicConfig,
        *,
        recovery_point: Offset = FIRST_OFFSET,
        log_start_offset: Offset = FIRST_OFFSET,
        clean: bool = False,
    ) -> PartitionLog:
        """A log of its own, recovered from ``recovery_point`` on unless it was closed ``clean``. Raises OSError."""
        from milena.storage.log.loading import open_log

        return open_log(
            LogContext(disk, clock),
            folder,
            topic,
            partition,
            topic_id,
            config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
        )

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition} {self.log_start_offset}..{self.log_end_offset}>"

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    @property
    def last_stable_offset(self) -> Offset:
        """The high watermark, or the first offset of an undecided transaction below it."""
        unstable = self.producers.first_unstable
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def update_config(self, config: TopicConfig) -> None:
        self.config = config
        self.remote_enabled = may_be_tiered(self.context, self.topic, config)

    @guarded
    def assign_topic_id(self, topic_id: UUID) -> None:
        """Write the id that ``partition.metadata`` was found without. Raises KafkaError."""
        path = f"{self.folder}/{PARTITION_METADATA}"
        self.context.disk.write_atomic(path, encode_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id
        self.must_sync(path)

    # Writing

    @guarded
    def append_as_leader(
        self, records: memoryview, *, leader_epoch: LeaderEpoch, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        """Check ``records``, give them offsets and ``leader_epoch`` in place, and write them: one batch, or from RAFT
        any number. Raises KafkaError with Kafka's code (InvalidRecords where single records are at fault); nothing has
        been written then."""
        if origin is Origin.RAFT:
            return log_append.append_raft(self, records, leader_epoch)
        return log_append.append_one(self, records, origin, leader_epoch)

    @guarded
    def append_or_check(self, records: memoryview, origin: Origin, leader_epoch: LeaderEpoch) -> Begun:
        """Append one batch, if its check is little work; else the check, for ``append_checked`` once it is done."""
        return log_append.append_or_check(self, records, origin, leader_epoch)

    @guarded
    def append_checked(self, check: AppendCheck, *, leader_epoch: LeaderEpoch) -> AppendInfo:
        """Write the batch of ``check``, which is done and was made for this log and ``config``. Raises KafkaError."""
        return log_append.append_checked(self, check, leader_epoch)

    @guarded
    def append_as_follower(self, records: memoryview, *, leader_epoch: LeaderEpoch | None = None) -> AppendInfo:
        """Write what the leader sent, as it is; a partial batch at the end is left out.

        ``leader_epoch``: the epoch this follower knows; batches of a later one are left out. Raises KafkaError.
        """
        return log_append.append_fetched(self, records, leader_epoch)

    @guarded
    def assign_epoch(self, epoch: LeaderEpoch, start: Offset) -> None:
        """Note a leader epoch before anything is written in it, as a new leader does. Raises KafkaError."""
        self.epochs.assign(epoch, start)
        self.save_epochs()

    @guarded
    def roll(self, base: Offset = FIRST_OFFSET) -> Segment:
        """Begin a new segment, at ``base`` or the end of the log if that is greater. Raises KafkaError."""
        base = max(base, self.log_end_offset)
        active = self.segments.active
        if active.base_offset == base:
            return active
        if self.recovery_point_lowered_by > self.checkpointed_truncations:
            self.context.save_checkpoints()
        active.seal()
        segment = Segment.create(self.context, self.folder, base, self.config)
        self.segments.add(segment)
        snapshot = self.producer_files.take(self.folder, self.producers, base)
        for path in (active.path(OFFSET_INDEX), active.path(TIME_INDEX), snapshot):
            if path is not None:
                self.must_sync(path)
        self.folder_changed = True
        self.context.rolled(self)
        return segment

    def add_aborted(self, entry: AbortedTxn) -> None:
        """Note an aborted transaction whose marker was just written. Raises OSError."""
        active = self.segments.active
        active.add_aborted(entry)
        self.must_sync(active.path(TXN_INDEX))

    @guarded
    def take_epochs(self, other: PartitionLog) -> None:
        """This log is a copy of ``other``: the epochs in which nothing was written are known from there alone
        (KAFKA-15608). Raises KafkaError."""
        self.epochs.clear()
        for epoch, start in other.epochs.entries:
            self.epochs.assign(epoch, start)
        self.save_epochs()

    def save_epochs(self) -> None:
        """Bring the file of leader epochs up to date. It is synced before the recovery point passes it: until then
        the epochs of a crashed log come from its batches. Those that lie in the tier do not, so that a tiered log
        syncs it here. Raises OSError."""
        if self.epochs.dirty:
            self._sync_topic_id()
            path = f"{self.folder}/{EPOCHS}"
            self.context.disk.write_atomic(path, encode_epochs(self.epochs.entries), sync=self.remote_enabled)
            self.epochs.dirty = False
            self.must_sync(path)

    def _sync_topic_id(self) -> None:
        """Before the first record of an epoch, as Kafka's ``maybeFlushMetadataFile``: records whose topic id a power
        loss took would be those of a later topic of the name. Raises OSError."""
        path = f"{self.folder}/{PARTITION_METADATA}"
        if self.topic_id is not None and self._unsynced is not None and path in self._unsynced:
            self.context.disk.write_atomic(path, encode_partition_metadata(self.topic_id))
            self._unsynced.discard(path)

    # Reading

    @guarded
    def read(self, offset: Offset, max_bytes: int, *, upper: Offset, min_one: bool) -> LogSlice:
        """The bytes from the batch that holds ``offset`` on, as far as they lie before ``upper`` and in one segment.

        A first batch larger than ``max_bytes`` comes whole with ``min_one`` and not at all without. Raises KafkaError
        OFFSET_OUT_OF_RANGE for offsets before the log's start or after its end, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        return find_slice(self, offset, max_bytes, upper, min_one)

    @guarded
    def read_bytes(self, offset: Offset, max_bytes: int, *, upper: Offset, min_one: bool) -> memoryview:
        """What ``read`` finds, read."""
        return find_slice(self, offset, max_bytes, upper, min_one).read()

    @guarded
    def offset_for_timestamp(self, timestamp: int) -> TimedRecord | None:
        """The first record at ``timestamp`` (ms) or later. Raises KafkaError."""
        return log_search.first_at_or_after(self, timestamp, self.local_log_start_offset)

    @guarded
    def max_timestamp_offset(self) -> TimedRecord | None:
        """The first record with the largest timestamp. Raises KafkaError."""
        return log_search.of_largest_timestamp(self)

    @guarded
    def aborted_transactions(self, start: Offset, upper: Offset) -> list[AbortedTxn]:
        """The aborted transactions with records in ``[start, upper)``. Raises KafkaError."""
        return aborted_between(self, start, upper)

    def leader_epoch_end_offset(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch | None, Offset | None]:
        """Where ``epoch``, or the next smaller one known, ends (docs/kafka-semantics.md: End offset for a leader
        epoch); both None where nothing can be said."""
        return self.epochs.end_offset_for(epoch, log_end=self.log_end_offset) or (None, None)

    # Moving the bounds

    def set_high_watermark(self, offset: Offset) -> None:
        """Take ``offset``, or the bound of the log that it lies beyond. It may move back only by the owner's will."""
        self.high_watermark = min(max(offset, self.local_log_start_offset), self.log_end_offset)
        self.producers.replicated_to(self.high_watermark)

    @guarded
    def increment_log_start(self, offset: Offset) -> bool:
        """Move the start of the log up to ``offset``; False where it is there already.

        Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark.
        """
        return truncation.increment_start(self, offset)

    @guarded
    def truncate_to(self, offset: Offset) -> bool:
        """Remove the records from ``offset`` on, with the epochs that began there; False where there were none.

        Raises KafkaError.
        """
        return truncation.truncate_to(self, offset)

    @guarded
    def truncate_fully_and_start_at(self, offset: Offset, *, log_start: Offset | None = None) -> None:
        """Remove everything; the next record gets ``offset``. ``log_start``: a start in the tier. Raises KafkaError."""
        truncation.start_over(self, offset, log_start)

    @guarded
    def delete_old_segments(self, now: int) -> int:
        """Delete the segments that retention lets go at ``now`` (ms); how many. Raises KafkaError."""
        return retention.delete_old_segments(self, now)

    def drop(self, segments: Iterable[Segment]) -> None:
        """Rename the files of segments that are no longer part of the log; they go later. Raises OSError."""
        due = self.context.clock.time_ms() + self.config.file_delete_delay_ms
        for segment in segments:
            marked: list[str | None] = [*segment.mark_deleted()]
            marked.append(self.producer_files.mark_deleted(self.folder, segment.base_offset))
            for path in marked:
                if path is not None:
                    self.context.deletions.later(due, path)

    # Surviving

    def must_sync(self, path: str) -> None:
        """A small file was written: it must be synced before the recovery point moves past it."""
        if self._unsynced is None:
            self._unsynced = set()
        self._unsynced.add(path)

    @guarded
    def plan_flush(self, upto: Offset | None = None) -> FlushPlan | None:
        """What to sync so that the records before ``upto`` (the log end) survive; None where all do."""
        plan = plan_of(self, self.log_end_offset if upto is None else upto, self._unsynced or ())
        if plan is not None:
            self._unsynced = None
            self.folder_changed = False
        return plan

    def flushed(self, plan: FlushPlan) -> None:
        """``plan`` has run: the recovery point moves up, unless the log was cut meanwhile."""
        if plan.truncations == self.truncations and plan.upto > self.recovery_point:
            self.recovery_point = plan.upto
        self.last_flush_ms = self.context.clock.time_ms()

    @guarded
    def flush(self) -> None:
        """Sync everything written so far, here and now. Raises KafkaError."""
        plan = self.plan_flush()
        if plan is not None:
            plan.run()
            self.flushed(plan)

    @guarded
    def close(self) -> None:
        """Write what is not in the log's files yet, and give back all handles. Flush afterwards. Raises KafkaError."""
        self.save_epochs()
        for segment in self.segments:
            segment.write_indexes()
            segment.close()
        self.producer_files.take(self.folder, self.producers, self.log_end_offset)
        if self.segments.active.size:
            # What else is written here can be told from the log, and is, where it is damaged.
            self.must_sync(self.segments.active.path(TIME_INDEX))

    def release(self) -> None:
        """Give back all handles without touching the disk, which may have failed."""
        for segment in self.segments:
            segment.close()

    def moved_to(self, folder: str) -> None:
        """The folder has been renamed, and the log goes on in it."""
        old, self.folder = self.folder, folder
        for segment in self.segments:
            segment.moved_to(folder)
        self._unsynced = {folder + path.removeprefix(old) for path in self._unsynced or ()}
        self.folder_changed = True

    def retire(self, folder: str) -> None:
        """The log is out of use, and its folder has been renamed. It refuses everything from now on."""
        self.release()
        self.retired = True
        self.folder = folder
