"""The files of one log: its segments, its leader epochs, and how far they are synced.

Like Kafka's ``LocalLog`` under ``UnifiedLog``: append, truncation, retention and tiering work on it; the rest of a node
uses ``UnifiedLog``.
"""

from __future__ import annotations

from collections.abc import Iterable

from milena.protocol.records.batch import FIRST_OFFSET, NO_LEADER_EPOCH
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.files.checkpoints import encode_epochs, encode_partition_metadata
from milena.storage.files.names import EPOCHS, OFFSET_INDEX, PARTITION_METADATA, TIME_INDEX, TXN_INDEX
from milena.storage.files.txn_index import AbortedTxn
from milena.storage.log.flush import SYNCED_FIRST, FlushPlan
from milena.storage.log.guard import guarded
from milena.storage.log.log_state import LogState
from milena.storage.log.segment import Segment


class LocalLog(LogState):
    """One log on its disk. Guarded methods raise KafkaError KAFKA_STORAGE_ERROR (see ``storage.log.guard``)."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    @property
    def sealed_end(self) -> Offset:
        """The base offset of the active segment."""
        return self.segments.active.base_offset

    @property
    def vouched_end(self) -> Offset:
        """The offset up to which this replica may tell others that it has the records. Starts a sync if that is not the
        log end."""
        if self.topic not in SYNCED_FIRST or self._recovery_point >= self._log_end:
            return self._log_end
        self.context.sync_soon(self)
        return self._recovery_point

    # Epochs

    @guarded
    def assign_epoch(self, epoch: LeaderEpoch, start: Offset) -> None:
        """Record a leader epoch before anything is written in it, as a new leader does. Raises KafkaError."""
        if not self._log_start <= start <= self._log_end:
            raise self._broken("an epoch begins within the log", epoch=epoch, start=start)
        self.epochs.assign(epoch, start)
        self.save_epochs()

    def save_epochs(self) -> None:
        """Bring the file of leader epochs up to date. It is synced before the recovery point passes it: until then the
        epochs of a crashed log are rebuilt from its batches. That is impossible for epochs whose records are in the
        tier, so a tiered log syncs the file here. Raises OSError."""
        if self.epochs.dirty:
            if self.remote_enabled:  # these epochs may count without a record here
                self.sync_topic_id()
            path = f"{self.folder}/{EPOCHS}"
            self.context.disk.write_atomic(path, encode_epochs(self.epochs.entries), sync=self.remote_enabled)
            self.epochs.dirty = False
            self.must_sync(path)

    def sync_topic_id(self) -> None:
        """Sync the topic id before the first record is written, as Kafka's ``maybeFlushMetadataFile``. If a power loss
        took the id but not the records, a later topic of the same name would get them. Raises OSError."""
        path = f"{self.folder}/{PARTITION_METADATA}"
        if self.topic_id is not None and path in self._unsynced:
            self.context.disk.write_atomic(path, encode_partition_metadata(self.topic_id))
            self._unsynced.file_synced(path)
        self.id_is_synced = True

    # Segments

    @guarded
    def roll(self, base: Offset = FIRST_OFFSET) -> Segment:
        """Begin a new segment, at ``base`` or at the log end offset, whichever is greater. Raises KafkaError."""
        base = max(base, self._log_end)
        active = self.segments.active
        if active.base_offset == base:
            return active
        if self.checkpoint_is_behind:
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
        """The log ends at ``offset``, and compaction has removed its last records. Raises KafkaError."""
        self.appended(offset, NO_LEADER_EPOCH)
        self.roll()

    def add_aborted(self, entry: AbortedTxn) -> None:
        """Record an aborted transaction whose marker was just written. Raises OSError."""
        active = self.segments.active
        active.add_aborted(entry)
        self.must_sync(active.path(TXN_INDEX))

    def drop(self, segments: Iterable[Segment], *, producers: bool = True) -> None:
        """Rename the files of segments that are no longer part of the log; they are deleted after
        ``file.delete.delay.ms``. Without ``producers``, their producer snapshots stay. Raises OSError."""
        due = self.context.clock.time_ms() + self.config.file_delete_delay_ms
        for segment in segments:
            marked: list[str | None] = [*segment.mark_deleted()]
            if producers:
                marked.append(self.producer_files.mark_deleted(self.folder, segment.base_offset))
            for path in marked:
                if path is not None:
                    self.context.deletions.later(due, path)

    # Flushing

    def must_sync(self, path: str) -> None:
        """A small file was written: it must be synced before the recovery point moves past it."""
        self._unsynced.file_written(path)

    def folder_changed(self) -> None:
        """The folder has new files, or a new name."""
        self._unsynced.folder_changed()

    @guarded
    def plan_flush(self, upto: Offset | None = None) -> FlushPlan | None:
        """What to sync so that the records before ``upto`` (default: the log end offset), and the small files, survive
        a power loss; None if all of them do. Raises KafkaError."""
        upto = self._log_end if upto is None else upto
        if upto <= self._recovery_point and (not self._unsynced.has_files or upto == self._log_start):
            return None
        pending = self._unsynced.pending()
        behind = self.segments.since(self._recovery_point) if upto > self._recovery_point else ()
        folders: tuple[str, ...] = ()
        if pending.folder:
            folders = (self.folder, self.folder.rpartition("/")[0])
        elif pending.files:
            folders = (self.folder,)  # small files are replaced by renaming
        return FlushPlan(
            self.context.disk,
            upto,
            self._truncations,
            self.folder,
            tuple(segment.file() for segment in behind if segment.base_offset < upto),
            pending,
            folders,
        )

    def flushed(self, plan: FlushPlan) -> None:
        """``plan`` has run: the recovery point moves up, unless the log was truncated meanwhile. If the folder was
        renamed meanwhile, the plan may not have found its files."""
        if plan.folder != self.folder:
            return
        self._unsynced.synced(plan.pending)
        if plan.truncations == self._truncations and plan.upto > self._recovery_point:
            if plan.upto > self._log_end:
                raise self._broken("recovery point <= log end", recovery_point=plan.upto)
            self._recovery_point = plan.upto
        self.last_flush_ms = self.context.clock.time_ms()

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
        """Write what is not in the log's files yet, and close all handles. Flush afterwards. Raises KafkaError."""
        self.save_epochs()
        for segment in self.segments:
            segment.write_indexes()
            segment.close()
        self.producer_files.take(self.folder, self.producers, self._log_end)
        if self.segments.active.size:
            # Everything else written here can be rebuilt from the log, and is rebuilt if it is damaged.
            self.must_sync(self.segments.active.path(TIME_INDEX))

    def release(self) -> None:
        """Close all handles without touching the disk, which may have failed."""
        for segment in self.segments:
            segment.close()

    def moved_to(self, folder: str) -> None:
        """The folder has been renamed; the log continues in it."""
        old, self.folder = self.folder, folder
        for segment in self.segments:
            segment.moved_to(folder)
        self._unsynced.moved(old, folder)

    def retire(self, folder: str) -> None:
        """The log is no longer used, and its folder has been renamed. All later calls are refused."""
        self.release()
        self.retired = True
        self.folder = folder
