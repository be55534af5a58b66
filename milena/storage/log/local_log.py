"""One log on its disk: its segments and small files, its bounds (offsets), and how far it is synced.

::

    0 <= log start <= local log start <= high watermark <= log end,   recovery point <= log end

The bounds change through the methods of ``LocalLog``, and the recovery point through a flush. Each method checks the
new values before it sets them, except ``set_high_watermark``, which clamps like Kafka's ``updateHighWatermark``. A
violated invariant is a bug in Milena, and takes the log offline (``BrokenLog``).

Other packages use ``UnifiedLog`` (``unified_log.py``), which adds append, read, truncation and retention.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.batch import FIRST_OFFSET, NO_LEADER_EPOCH
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.files.checkpoints import encode_epochs
from milena.storage.files.names import EPOCHS, OFFSET_INDEX, PARTITION_METADATA, TIME_INDEX, TXN_INDEX
from milena.storage.files.txn_index import AbortedTxn
from milena.storage.log.broken_log import BrokenLog
from milena.storage.log.context import may_be_tiered
from milena.storage.log.flush import SYNCED_FIRST, FlushPlan, Unsynced
from milena.storage.log.guard import guarded
from milena.storage.log.segment import Segment

if TYPE_CHECKING:
    from uuid import UUID

    from milena.config.topic_config import TopicConfig
    from milena.storage.log.context import LogContext
    from milena.storage.log.producer_files import ProducerFiles
    from milena.storage.log.segments import Segments
    from milena.storage.state.epoch_cache import LeaderEpochCache
    from milena.storage.state.producer_state import ProducerState

E = TypeVar("E", bound=KafkaError)


class LocalLog:
    """The parts of one log and its bounds. A method that would violate an invariant raises BrokenLog and changes
    nothing. Guarded methods raise KafkaError KAFKA_STORAGE_ERROR if the disk fails (see ``storage.log.guard``)."""

    __slots__ = (
        "_high_watermark",
        "_highest_in_remote_storage",
        "_local_start",
        "_log_end",
        "_log_start",
        "_recovery_point",
        "_recovery_point_lowered_by",
        "_truncations",
        "_unsynced",
        "checkpointed_high_watermark",
        "checkpointed_truncations",
        "cleaned_to",
        "config",
        "context",
        "epochs",
        "folder",
        "id_is_synced",
        "last_flush_ms",
        "partition",
        "producer_files",
        "producers",
        "remote_enabled",
        "retired",
        "segments",
        "topic",
        "topic_id",
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
        self._log_start = log_start
        self._local_start = max(log_start, segments[0].base_offset)
        self._log_end = log_end
        self._high_watermark = self._local_start
        self._recovery_point = max(recovery_point, log_start)
        self._highest_in_remote_storage = Offset(-1)
        self._truncations = 0
        self._recovery_point_lowered_by = self.checkpointed_truncations = 0
        self.checkpointed_high_watermark: Offset | None = None
        """The high watermark in the checkpoint on disk, None if the checkpoint does not list this log."""
        self.cleaned_to: Offset | None = None
        """The first dirty offset: compaction has processed the records before it. None if the log was never cleaned."""
        self.last_flush_ms = context.clock.time_ms()
        self.retired = False
        """Whether the log refuses all calls: it was deleted, is damaged, or an invariant is violated."""
        self._unsynced = Unsynced()
        self.id_is_synced = False
        """Whether the topic id is known to be synced."""
        self.remote_enabled = may_be_tiered(context, topic, config)

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition} {self._log_start}..{self._log_end}>"

    # The bounds

    @property
    def log_start_offset(self) -> Offset:
        """The first offset of the log, on this disk or in the tier."""
        return self._log_start

    @property
    def local_log_start_offset(self) -> Offset:
        """The first offset on this disk."""
        return self._local_start

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self._log_end

    @property
    def high_watermark(self) -> Offset:
        """The offset after the last committed record."""
        return self._high_watermark

    @property
    def recovery_point(self) -> Offset:
        """The offset below which the log is synced."""
        return self._recovery_point

    @property
    def unflushed(self) -> int:
        """The number of offsets that are not synced yet."""
        return self._log_end - self._recovery_point

    @property
    def highest_offset_in_remote_storage(self) -> Offset:
        """The last offset of this log that is in the tier, -1 for none. On a follower it may be above the log end
        offset."""
        return self._highest_in_remote_storage

    @property
    def truncations(self) -> int:
        """The number of truncations since the log was opened."""
        return self._truncations

    @property
    def checkpoint_is_behind(self) -> bool:
        """Whether the log was truncated below its recovery point and the checkpoint on disk is not updated yet."""
        return self._recovery_point_lowered_by > self.checkpointed_truncations

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    @property
    def sealed_end(self) -> Offset:
        """The base offset of the active segment."""
        return self.segments.active.base_offset

    @property
    def reportable_end(self) -> Offset:
        """The end offset that this replica reports to other brokers. It is the log end offset; for ``SYNCED_FIRST``
        topics it is the recovery point, and a sync is started if that is lower."""
        if self.topic not in SYNCED_FIRST or self._recovery_point >= self._log_end:
            return self._log_end
        self.context.sync_soon(self)
        return self._recovery_point

    def check_append_begins(self, first: int) -> None:
        """Check ``first``, the offset of an append whose offsets the caller has not just assigned. Raises
        BrokenInvariant."""
        if first < self._log_end or first < self.segments.active.base_offset:
            raise self._broken("an append begins at the log end, in the active segment", first=first)

    def appended(self, end: Offset, epoch: int) -> None:
        """Move the log end to ``end``: records before it were written, the last one in leader epoch ``epoch``."""
        if end <= self._log_end:
            raise self._broken("an append must move the log end", log_end=end)
        if epoch >= 0 and epoch != self.epochs.latest:
            raise self._broken("the epoch of an append is the latest of the epoch cache", epoch=epoch)
        self._log_end = end

    def raise_high_watermark(self, offset: Offset) -> None:
        """Advance a leader's high watermark to the smallest log end offset of its ISR. It never decreases and never
        exceeds the log end offset, as in Kafka's ``maybeIncrementHighWatermark``."""
        if not self._high_watermark <= offset <= self._log_end:
            raise self._broken("the high watermark rises up to the log end", high_watermark=offset)
        self._high_watermark = offset
        self.producers.replicated_to(offset)

    def set_high_watermark(self, offset: Offset) -> None:
        """Set the high watermark to that of a checkpoint or of the leader, clamped to the local log, as in Kafka's
        ``updateHighWatermark``: this log may lack some of those records. It may decrease."""
        bounded = min(max(offset, self._local_start), self._log_end)
        self._high_watermark = bounded
        self.producers.replicated_to(bounded)

    def move_start(self, offset: Offset) -> None:
        """Increase the log start offset to ``offset``."""
        if offset < self._log_start:
            raise self._broken(
                "the log start falls only by a truncation, or when bounds are taken from another log", log_start=offset
            )
        self._set_bounds(offset, max(self._local_start, offset), self._log_end, self._high_watermark)
        self._recovery_point = max(self._recovery_point, offset)

    def move_local_start(self, offset: Offset) -> None:
        """Increase the local log start offset to ``offset``; earlier records are in the tier. Does nothing if the local
        log starts later."""
        if offset > self._local_start:
            if offset > self._log_start and offset > self._highest_in_remote_storage + 1:
                raise self._broken("what leaves this disk is in the tier", local_log_start=offset)
            self._set_bounds(self._log_start, offset, self._log_end, self._high_watermark)

    def take_bounds(self, other: LocalLog) -> None:
        """Take over the log start and tier bounds of ``other``. This log is a copy of its local records."""
        start, local = min(self._log_start, other._log_start), max(self._local_start, other._local_start)
        self._set_bounds(start, local, self._log_end, self._high_watermark)
        self._highest_in_remote_storage = other._highest_in_remote_storage

    def begin_truncation(self) -> None:
        """Count a truncation, so that the result of a flush in progress is ignored."""
        self._truncations += 1

    def cut_to(self, end: Offset) -> None:
        """Lower the bounds to ``end``: records from there on were truncated. New records at those offsets may differ
        from those in the tier, so they do not count as copied."""
        if end > self._log_end:
            raise self._broken("truncation never raises the log end", log_end=end)
        start, local = min(self._log_start, end), min(self._local_start, end)
        self._set_bounds(start, local, end, max(local, min(self._high_watermark, end)))
        self._highest_in_remote_storage = min(self._highest_in_remote_storage, Offset(end - 1))
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, end)

    def restart_at(self, offset: Offset, *, log_start: Offset) -> None:
        """Set the bounds of an empty local log: the next record gets ``offset``, the log starts at ``log_start``."""
        if len(self.segments) != 1 or self.segments.active.size:
            raise self._broken("a log that restarts has one empty segment", size=self.segments.size)
        self._set_bounds(log_start, offset, offset, offset)
        self._highest_in_remote_storage = min(self._highest_in_remote_storage, Offset(offset - 1))
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, offset)

    def truncated(self) -> None:
        """End a truncation: lower the recovery point, and update the producer state."""
        unstable = self.producers.first_unstable
        if unstable is not None and unstable >= self._log_end:
            raise self._broken("an open transaction has records", first_unstable=unstable)
        self.producers.replicated_to(self._high_watermark)
        if self._recovery_point > self._log_end:
            self._recovery_point = self._log_end
            self._recovery_point_lowered_by = self._truncations  # until a checkpoint of it is on disk
            self.context.truncated()

    def raise_highest_offset_in_remote_storage(self, offset: Offset) -> None:
        """Record that a segment up to ``offset`` was copied to the tier."""
        self._highest_in_remote_storage = max(self._highest_in_remote_storage, offset)

    def set_highest_offset_in_remote_storage(self, offset: Offset) -> None:
        """Set the last offset in the tier. Local segments up to it may be deleted. It decreases if the tier has lost
        segments."""
        self._highest_in_remote_storage = offset

    def _set_bounds(self, start: Offset, local: Offset, end: Offset, high_watermark: Offset) -> None:
        if not 0 <= start <= local <= high_watermark <= end:
            raise self._broken(
                "log start <= local log start <= high watermark <= log end",
                log_start=start,
                local_log_start=local,
                high_watermark=high_watermark,
                log_end=end,
            )
        if self.segments.active.base_offset > end:
            raise self._broken("no segment begins after the log end", log_end=end)
        self._log_start, self._local_start, self._log_end, self._high_watermark = start, local, end, high_watermark

    def damaged(self, reason: str) -> KafkaError:
        """Take the log offline because of damaged files, and return the error to raise. The log is recovered at the
        next start."""
        self.context.events.error(
            "log offline, files damaged",
            topic=self.topic,
            partition=self.partition,
            folder=self.folder,
            reason=reason,
            log_end=self._log_end,
        )
        return self._ended(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.folder}: {reason}"))

    def _broken(self, invariant: str, **proposed: int) -> BrokenLog:
        """Take the log offline because of ``invariant``, and return the error to raise. ``proposed``: the new values
        that would violate it."""
        latest = self.epochs.latest_entry
        numbers = {
            "log_start": self._log_start,
            "local_log_start": self._local_start,
            "high_watermark": self._high_watermark,
            "log_end": self._log_end,
            "recovery_point": self._recovery_point,
            "highest_offset_in_remote_storage": self._highest_in_remote_storage,
            "truncations": self._truncations,
            "segments": len(self.segments),
            "active_segment": self.segments.active.base_offset if len(self.segments) else None,
            "latest_epoch": latest.epoch if latest is not None else None,
            "latest_epoch_start": latest.start if latest is not None else None,
        }
        self.context.events.error(
            "log offline, invariant violated",
            topic=self.topic,
            partition=self.partition,
            folder=self.folder,
            invariant=invariant,
            **numbers,
            **{f"proposed_{name}": value for name, value in proposed.items()},
        )
        change = ", but " + ", ".join(f"{name} {value}" for name, value in proposed.items()) if proposed else ""
        return self._ended(BrokenLog(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.folder}: {invariant}{change} ({numbers})"))

    def _ended(self, error: E) -> E:
        self.retired = True
        self.context.ended(self, error)
        return error

    def ended_by(self, broken: BrokenInvariant) -> BrokenInvariant:
        """Take the log offline because an invariant of one of its parts is violated, and return the error to raise."""
        return broken if isinstance(broken, BrokenLog) else self._broken(str(broken))

    # Epochs

    @guarded
    def assign_epoch(self, epoch: LeaderEpoch, start: Offset) -> None:
        """Add a leader epoch before the first record in it, as a new leader does. Raises KafkaError."""
        if not self._log_start <= start <= self._log_end:
            raise self._broken("an epoch begins within the log", epoch=epoch, start=start)
        self.epochs.assign(epoch, start)
        self.save_epochs()

    def begin_epoch(self, epoch: LeaderEpoch, start: Offset, *, leads: bool) -> None:
        """Add ``epoch``, whose first batch is appended next, at ``start``. The caller saves the epochs.

        A leader never writes in an earlier epoch than its latest. A follower takes the epochs of its leader's batches,
        as in Kafka, and removes later ones.
        """
        epochs = self.epochs
        if leads and epochs.latest is not None and epoch < epochs.latest:
            raise self._broken("leader epochs rise with the offsets", epoch=epoch, start=start)
        epochs.truncate_from_end(start)  # a follower that began in the tier may have epochs after its log end
        epochs.assign(epoch, start)

    def save_epochs(self) -> None:
        """Write the leader epoch checkpoint if it is out of date. It is synced by the next flush, since recovery can
        rebuild the epochs above the recovery point from the batches. This is not possible for epochs whose records are
        in the tier, so a tiered log syncs the file here. Raises OSError."""
        epochs = self.epochs
        if epochs.dirty:
            if self.remote_enabled:  # the epochs may be used before a local record is written
                self.sync_topic_id()
            path = f"{self.folder}/{EPOCHS}"
            if self.remote_enabled or tuple(epochs.entries) != epochs.saved:
                self.context.disk.write_atomic(path, encode_epochs(epochs.entries), sync=self.remote_enabled)
                epochs.saved = None
            epochs.dirty = False
            self.must_sync(path)

    def sync_topic_id(self) -> None:
        """Sync the topic id before the first record is written, like Kafka's ``maybeFlushMetadataFile``. If a power
        failure destroyed the id but not the records, a new topic of the same name would get them. Raises OSError."""
        plan = self.plan_id_sync()
        if plan is not None:
            plan.run()
            self.flushed(plan)
        self.id_is_synced = True

    # Segments

    @guarded
    def roll(self, base: Offset = FIRST_OFFSET) -> Segment:
        """Create a new active segment at ``base`` or at the log end offset, whichever is greater. Raises KafkaError."""
        base = max(base, self._log_end)
        active = self.segments.active
        if active.base_offset == base:
            return active
        if self.checkpoint_is_behind:  # else the new segment could count as synced after a crash
            self.context.save_checkpoints()
        active.seal()
        segment = Segment.create(self.context, self.folder, base, self.config)
        self.segments.add(segment)
        snapshot = self.producer_files.take(self.folder, self.producers, base)
        for path in (active.path(OFFSET_INDEX), active.path(TIME_INDEX), snapshot):
            if path is not None:
                self.must_sync(path)
        self.folder_changed()
        self.context.rolled(self)
        return segment

    def end_at(self, offset: Offset) -> None:
        """Move the log end to ``offset`` with an empty segment: compaction has removed the last records. Raises
        KafkaError."""
        self.appended(offset, NO_LEADER_EPOCH)
        self.roll()

    def add_aborted(self, entry: AbortedTxn) -> None:
        """Add an aborted transaction, whose marker was just written, to the transaction index. Raises OSError."""
        active = self.segments.active
        active.add_aborted(entry)
        self.must_sync(active.path(TXN_INDEX))

    def drop(self, segments: Iterable[Segment], *, producers: bool = True) -> None:
        """Rename the files of removed segments; they are deleted after ``file.delete.delay.ms``. Without ``producers``,
        their producer snapshots are kept. Raises OSError."""
        due = self.context.clock.time_ms() + self.config.file_delete_delay_ms
        for segment in segments:
            marked: list[str | None] = [*segment.mark_deleted()]
            if producers:
                marked.append(self.producer_files.mark_deleted(self.folder, segment.base_offset))
            for path in marked:
                if path is not None:
                    self.context.deletions.schedule(due, path)

    # Flushing

    def must_sync(self, path: str) -> None:
        """Have the next flush sync ``path``, a small file that was written."""
        self._unsynced.file_written(path)

    def folder_changed(self) -> None:
        """Have the next flush sync the folder, which has new files or was renamed."""
        self._unsynced.folder_changed()

    @guarded
    def plan_flush(self, upto: Offset | None = None) -> FlushPlan | None:
        """Return what to sync so that the records before ``upto`` (default: the log end offset) and the small files
        survive a power failure; None if all is synced. Raises KafkaError."""
        upto = self._log_end if upto is None else upto
        if upto <= self._recovery_point and (not self._unsynced.has_files or upto == self._log_start):
            return None
        pending = self._unsynced.pending()
        unflushed = self.segments.since(self._recovery_point) if upto > self._recovery_point else ()
        folders: tuple[str, ...] = ()
        if pending.folder:
            folders = (self.folder, self.folder.rpartition("/")[0])
        elif pending.files:
            folders = (self.folder,)  # a small file is replaced by a rename
        return FlushPlan(
            self.context.disk,
            upto,
            self._truncations,
            self.folder,
            tuple(segment.file() for segment in unflushed if segment.base_offset < upto),
            pending,
            folders,
        )

    def flushed(self, plan: FlushPlan) -> None:
        """Advance the recovery point after ``plan`` has run. It does not count if the log was truncated in between, or
        if the folder was renamed, so that the plan may have missed files."""
        if plan.folder != self.folder:
            return
        self._unsynced.synced(plan.pending)
        if plan.truncations == self._truncations and plan.upto > self._recovery_point:
            if plan.upto > self._log_end:
                raise self._broken("recovery point <= log end", recovery_point=plan.upto)
            self._recovery_point = plan.upto
        self.last_flush_ms = self.context.clock.time_ms()

    @guarded
    def plan_id_sync(self) -> FlushPlan | None:
        """Return what to sync for ``sync_topic_id``; None if the topic id is synced. Raises KafkaError."""
        path = f"{self.folder}/{PARTITION_METADATA}"
        pending = self._unsynced.pending_file(path)
        if pending is None:
            return None
        upto = self._recovery_point  # no records
        return FlushPlan(self.context.disk, upto, self._truncations, self.folder, (), pending, (self.folder,))

    @guarded
    def flush(self) -> None:
        """Sync everything written so far, blocking. Raises KafkaError."""
        plan = self.plan_flush()
        if plan is not None:
            plan.run()
            self.flushed(plan)

    # The end

    @guarded
    def close(self) -> None:
        """Write pending index entries, epochs and the producer snapshot, and close all handles. The caller flushes the
        log afterwards. Raises KafkaError."""
        self.save_epochs()
        for segment in self.segments:
            segment.write_indexes()
            segment.close()
        self.producer_files.take(self.folder, self.producers, self._log_end)
        if self.segments.active.size:
            # The other files can be rebuilt from the log file, and are rebuilt if they are damaged.
            self.must_sync(self.segments.active.path(TIME_INDEX))

    def release(self) -> None:
        """Close all handles without touching the disk, which may have failed."""
        for segment in self.segments:
            segment.close()

    def moved_to(self, folder: str) -> None:
        """Continue in ``folder``, to which the folder was renamed."""
        old, self.folder = self.folder, folder
        for segment in self.segments:
            segment.moved_to(folder)
        self._unsynced.moved(old, folder)

    def retire(self, folder: str) -> None:
        """Refuse all later calls: the log was deleted, and its folder was renamed to ``folder``."""
        self.release()
        self.retired = True
        self.folder = folder
