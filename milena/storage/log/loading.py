"""Opens a log, like Kafka's ``LogLoader``: loads segments, leader epochs and producer state from the files in its
folder, and recovers them if necessary."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from milena.config.topic_config import TopicConfig
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.batch import FIRST_OFFSET, CorruptBatch
from milena.protocol.types import Offset
from milena.runtime.clock import Clock
from milena.runtime.disk import Disk
from milena.storage.files.checkpoints import (
    CorruptCheckpoint,
    decode_epochs,
    decode_partition_metadata,
    encode_partition_metadata,
)
from milena.storage.files.index_file import CorruptIndex
from milena.storage.files.names import (
    CLEANED,
    DELETED,
    EPOCHS,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    REMOTE_CLEANING,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    TIME_INDEX,
    TXN_INDEX,
    offset_of_file,
    segment_file,
)
from milena.storage.files.swap_recovery import finish_swaps
from milena.storage.log.batch_scan import end_of
from milena.storage.log.context import NEVER_TIERED, LogContext, may_be_tiered
from milena.storage.log.producer_files import ProducerFiles
from milena.storage.log.recovery import Cut, Recovery, begins_locally, rebuild_epochs, replay_producers
from milena.storage.log.segment import Segment
from milena.storage.log.segments import Segments
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.state.epoch_cache import EpochEntry, LeaderEpochCache
from milena.storage.state.producer_state import ProducerState

_EVERYWHERE: Final = Offset((1 << 63) - 1)
_REMAINS = (DELETED, CLEANED, TEMPORARY, REMOTE_CLEANING)


@dataclass(slots=True)
class _Loading:
    """The state of a log that is being opened."""

    context: LogContext
    folder: str
    topic: str
    partition: int
    config: TopicConfig
    log_start: Offset
    cleaned_to: Offset
    segments: Segments = field(default_factory=Segments)
    epochs: LeaderEpochCache = field(default_factory=LeaderEpochCache)
    producers: ProducerState = field(default_factory=ProducerState)
    names: list[str] = field(default_factory=list)
    saved_epochs: tuple[EpochEntry, ...] = ()
    """The leader epochs in the checkpoint."""

    def event(self, event: str, **fields: object) -> None:
        self.context.events.warning(event, topic=self.topic, partition=self.partition, **fields)


def open_log(
    context: LogContext,
    folder: str,
    topic: str,
    partition: int,
    topic_id: UUID | None,
    config: TopicConfig,
    *,
    recovery_point: Offset,
    log_start_offset: Offset,
    clean: bool,
    cleaned_to: Offset | None = None,
) -> UnifiedLog:
    """Open the log in ``folder``, which is created if it is missing.

    ``recovery_point``, ``log_start_offset`` and ``cleaned_to`` (None: never cleaned) are from the checkpoints of the
    directory. ``clean``: whether the directory was shut down cleanly. May run in a worker. Raises OSError, and
    KafkaError INCONSISTENT_TOPIC_ID if the folder belongs to another topic.
    """
    loading = _Loading(context, folder, topic, partition, config, log_start_offset, cleaned_to or FIRST_OFFSET)
    _list_files(loading)
    topic_id, new_id = _topic_id(loading, topic_id)
    # Records before the log start are not recovered: they may never have been synced, and are never read.
    recovery_point = max(recovery_point, log_start_offset)
    intact = _load_segments(loading, None if clean else recovery_point)
    files = ProducerFiles(context, _offsets(loading.names, SNAPSHOT))
    _load_epochs(loading)
    loading.log_start = _log_start_from_epochs(loading)
    try:
        for segment, has_indexes in intact:
            _check_indexes(loading, segment, has_indexes)
        log_start, log_end = _bring_up(loading, files, recovery_point, clean)
    except (CorruptBatch, BrokenInvariant) as error:
        log_start, log_end = _recover_all(loading, files, log_start_offset, error)
    for segment in loading.segments:
        segment.release()
    log = UnifiedLog(
        context,
        folder,
        topic,
        partition,
        topic_id,
        config,
        loading.segments,
        loading.epochs,
        loading.producers,
        files,
        log_start=log_start,
        log_end=log_end,
        recovery_point=log_end if clean else min(recovery_point, log_end),
    )
    log.cleaned_to = cleaned_to
    # If the checkpoint has more epochs, it need not be written: those are truncated again at the next start. The leader
    # of an empty log begins its epoch again, so that the checkpoint is right as it is.
    loading.epochs.dirty = _has_new_epochs(loading, log_start)
    if len(loading.saved_epochs) > len(loading.epochs.entries):
        loading.epochs.saved = loading.saved_epochs
    log.save_epochs()
    if not (clean and loading.names):  # after a crash the folder may not be synced
        log.folder_changed()
    if new_id or (topic_id is not None and log_end == log_start):  # a shutdown does not sync an empty log
        log.must_sync(f"{folder}/{PARTITION_METADATA}")
    return log


def open_alone(
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
) -> UnifiedLog:
    """Open a log without a LogManager. It is recovered from ``recovery_point`` on, unless ``clean``. Raises OSError."""
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


def _log_start_from_epochs(loading: _Loading) -> Offset:
    """Return the log start offset of a tiered log, which may be above that of the checkpoint.

    When the log start moves, a tiered log syncs its leader epochs at once, and the log start checkpoint is written
    later. So if the epochs begin above the checkpoint's log start, they give the true one. Epochs that were rebuilt are
    an exception: they begin at the first local record, and compaction may have left a gap before it.
    """
    start, known, segments = loading.log_start, loading.saved_epochs, loading.segments
    # The topic may become tiered again at any time.
    tiered = loading.context.tiered and loading.topic not in NEVER_TIERED
    if not tiered or not known or not len(segments) or begins_locally(segments, known[0].start):
        return start
    return max(start, known[0].start)


def _list_files(loading: _Loading) -> None:
    """List the files, complete interrupted swaps, and remove temporary and deleted files."""
    disk = loading.context.disk
    try:
        names = disk.list(loading.folder)
    except FileNotFoundError:
        disk.make_folders(loading.folder)
        return
    if any(name.endswith(SWAP) for name in names):
        done = finish_swaps(disk, loading.folder, names, end_of)
        loading.event("interrupted segment swap completed", segments=done)
        names = disk.list(loading.folder)
    loading.names += [name for name in names if not name.endswith(_REMAINS)]
    for path in [f"{loading.folder}/{name}" for name in names if name.endswith(_REMAINS)]:
        if path.endswith(REMOTE_CLEANING):
            disk.remove_tree(path)
        else:
            disk.remove(path)


def _topic_id(loading: _Loading, expected: UUID | None) -> tuple[UUID | None, bool]:
    """Return the topic id in ``partition.metadata``, or else the expected one, and whether that was written."""
    disk, path = loading.context.disk, f"{loading.folder}/{PARTITION_METADATA}"
    if PARTITION_METADATA in loading.names:
        try:
            topic_id = decode_partition_metadata(disk.read(path))
        except CorruptCheckpoint as error:
            loading.event("topic id unreadable", path=path, reason=str(error))
        else:
            if expected is not None and topic_id != expected:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID, f"{path} has the topic id {topic_id}, where {expected} is expected"
                )
            return topic_id, False
    if expected is None:
        return None, False
    disk.write_atomic(path, encode_partition_metadata(expected), sync=False)  # it is synced before the first record
    return expected, True


def _offsets(names: list[str], suffix: str) -> list[Offset]:
    return [
        Offset(offset)
        for name in names
        if name.endswith(suffix)
        and (offset := offset_of_file(name)) is not None
        and name == segment_file(offset, suffix)
    ]


def _load_segments(loading: _Loading, recovery_point: Offset | None) -> list[tuple[Segment, bool]]:
    """Open the segments in order; remove indexes without a log file.

    Returns the segments below the recovery point, each with whether its indexes exist. The indexes of later segments
    are rebuilt by recovery. ``recovery_point``: None after a clean shutdown.
    """
    disk, folder = loading.context.disk, loading.folder
    names = set(loading.names)
    bases = _offsets(loading.names, LOG)
    for suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX):
        for offset in _offsets(loading.names, suffix):
            if segment_file(offset, LOG) not in names:
                loading.event("orphan index removed", path=f"{folder}/{segment_file(offset, suffix)}")
                disk.remove(f"{folder}/{segment_file(offset, suffix)}")
    intact = len(bases) if recovery_point is None else max(bisect_right(bases, recovery_point) - 1, 0)
    checked = []
    for number, base in enumerate(bases):
        size = disk.size(f"{folder}/{segment_file(base, LOG)}")
        has_indexes = all(segment_file(base, suffix) in names for suffix in (OFFSET_INDEX, TIME_INDEX))
        segment = Segment(loading.context, folder, base, size=size, indexes_exist=has_indexes and number < intact)
        loading.segments.add(segment)
        if number < intact:
            checked.append((segment, has_indexes))
    return checked


def _check_indexes(loading: _Loading, segment: Segment, has_indexes: bool) -> None:
    """Rebuild the indexes of ``segment`` if they are missing or invalid. Raises CorruptBatch if a batch is damaged."""
    try:
        if segment.size and not has_indexes:
            raise CorruptIndex("an index is missing")
        if has_indexes:
            segment.offset_index.check(segment.size)
            segment.time_index.check()
            segment.aborted()
    except CorruptIndex as error:
        loading.event("index rebuilt", segment=segment.base_offset, reason=str(error))
        _rebuild_indexes(loading, segment)
    segment.release_indexes()


def _rebuild_indexes(loading: _Loading, segment: Segment) -> None:
    """Rebuild the indexes from the batches. Its own producer state gives the aborted transactions."""
    files = ProducerFiles(loading.context, _offsets(loading.names, SNAPSHOT))
    recovery = _recovery(loading, files, ProducerState(), LeaderEpochCache())
    recovery.producers_as_of(segment.base_offset)
    cut = recovery.rebuild(segment)
    if cut is not None:
        _report(loading, cut, 0)


def _recovery(loading: _Loading, files: ProducerFiles, producers: ProducerState, epochs: LeaderEpochCache) -> Recovery:
    config = loading.config
    return Recovery(
        loading.folder,
        loading.segments,
        epochs,
        producers,
        files,
        loading.log_start,
        config.index_interval_bytes,
        _EVERYWHERE if config.compacted else loading.cleaned_to,
    )


def _load_epochs(loading: _Loading) -> None:
    """Load the leader epochs from the checkpoint or, if it is missing, empty or damaged, from the batches."""
    path = f"{loading.folder}/{EPOCHS}"
    reason = "missing"
    if EPOCHS in loading.names:
        try:
            loading.saved_epochs = tuple(
                EpochEntry(epoch, start) for epoch, start in decode_epochs(loading.context.disk.read(path))
            )
            loading.epochs = LeaderEpochCache(loading.saved_epochs)
        except CorruptCheckpoint as error:
            reason = str(error)
    if loading.epochs.entries:
        return
    if any(segment.size for segment in loading.segments):
        loading.event("leader epochs rebuilt", path=path, reason=reason)
        try:
            rebuild_epochs(loading.segments, loading.epochs)
        except CorruptBatch:
            # The incomplete end after a crash, which recovery truncates: no epoch begins after it.
            return


def _has_new_epochs(loading: _Loading, log_start: Offset) -> bool:
    """Whether recovery has found leader epochs that the checkpoint lacks: after a power failure it may be out of
    date."""
    saved = dict(loading.saved_epochs)
    return any(
        epoch not in saved or (start != saved[epoch] and start > log_start) for epoch, start in loading.epochs.entries
    )


def _bring_up(loading: _Loading, files: ProducerFiles, recovery_point: Offset, clean: bool) -> tuple[Offset, Offset]:
    """Recover if necessary, and make segments, leader epochs and producer state consistent. Returns the log start
    offset and the log end offset."""
    segments, config = loading.segments, loading.config
    if len(segments):
        if not clean:
            _recover(loading, files, recovery_point)
        if segments.active.next_offset() < loading.log_start:
            _restart_at_log_start(loading)
    if not len(segments):
        segments.add(Segment.create(loading.context, loading.folder, loading.log_start, config))
    log_end = segments.active.next_offset()
    tiered = may_be_tiered(loading.context, loading.topic, config)
    log_start = loading.log_start if tiered else max(loading.log_start, segments[0].base_offset)
    loading.epochs.truncate_from_end(log_end)
    loading.epochs.truncate_from_start(log_start)
    _load_producers(loading, files, log_start, log_end, clean)
    return log_start, log_end


def _recover_all(
    loading: _Loading, files: ProducerFiles, log_start: Offset, error: CorruptBatch | BrokenInvariant
) -> tuple[Offset, Offset]:
    """Recover the complete log, since it is damaged before its recovery point."""
    loading.event("log damaged below its recovery point", reason=str(error))
    if isinstance(error, BrokenInvariant):
        files.remove_all(loading.folder)  # the snapshots contradict the batches
    return _bring_up(loading, files, log_start, False)


def _recover(loading: _Loading, files: ProducerFiles, recovery_point: Offset) -> None:
    cut = _recovery(loading, files, loading.producers, loading.epochs).run(recovery_point)
    if cut is not None:
        dropped = loading.segments.take_beyond(cut.segment)
        _drop(loading, dropped)
        _report(loading, cut, len(dropped))


def _drop(loading: _Loading, segments: list[Segment]) -> None:
    """Rename the files of segments at once, since a new segment may have the same base offset."""
    context = loading.context
    due = context.clock.time_ms() + loading.config.file_delete_delay_ms
    for segment in segments:
        for path in segment.mark_deleted():
            context.deletions.schedule(due, path)


def _report(loading: _Loading, cut: Cut, dropped: int) -> None:
    loading.event(
        "log truncated in recovery",
        segment=cut.segment,
        next_offset=cut.next_offset,
        bytes_truncated=cut.size,
        segments_dropped=dropped,
        reason=cut.reason,
    )


def _restart_at_log_start(loading: _Loading) -> None:
    """Remove all segments: files were lost, and the remaining records end before the log start."""
    loading.event("log end below log start, all segments removed", log_start=loading.log_start)
    _drop(loading, loading.segments.take_from(0))
    loading.epochs.clear()
    loading.producers.clear()


def _load_producers(loading: _Loading, files: ProducerFiles, log_start: Offset, log_end: Offset, clean: bool) -> None:
    """Load the producer state at the log end. Recovery has loaded it already unless ``clean``."""
    files.remove_strays(loading.folder, [segment.base_offset for segment in loading.segments])
    files.keep_within(loading.folder, log_start, log_end)
    if not clean:
        files.take(loading.folder, loading.producers, log_end)
    else:
        start = files.load(loading.folder, loading.producers, upto=log_end, log_start=log_start)
        replay_producers(loading.segments, loading.producers, start, log_end)
