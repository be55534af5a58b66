"""Reads the topic ``__remote_log_metadata`` from log directories, without a broker.

If a partition is in several directories, the longest log is used. Unreadable records are reported and skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from milena.protocol.records.batch import BatchView, CorruptBatch, iter_batches
from milena.protocol.records.records import iter_records, offset_of
from milena.protocol.records.remote_log_records import UnknownRemoteLogRecord, UnreadableRemoteLogRecord
from milena.protocol.types import NodeId, Offset
from milena.runtime.disk import Disk
from milena.storage.files.names import LOG, offset_of_file
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.metadata.serialization import MetadataEvent, deserialize
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)

_COPIED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETIONS: Final = frozenset(
    {RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED}
)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A record of the metadata topic, and its position there. ``accepted``: whether its state transition was valid.
    ``void``: whether it stands behind the claim of a later leader."""

    number: int
    offset: Offset
    event: MetadataEvent
    accepted: bool
    void: bool = False


def is_deleted(events: Iterable[LoggedEvent]) -> bool:
    """Whether the deletion of a segment was announced by someone who might, and not taken back."""
    deleted = False
    for logged in events:
        if logged.void:
            continue
        if isinstance(logged.event, RemoteLogSegmentUpdate) and logged.event.overrules and logged.accepted:
            deleted = False
        deleted = deleted or logged.event.state in DELETIONS
    return deleted


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An unreadable part of a partition of the metadata topic. ``unknown``: a newer broker has written it."""

    number: int
    why: str
    unknown: bool = False


@dataclass(slots=True)
class MetadataHistory:
    """The contents of the whole topic."""

    numbers: set[int] = field(default_factory=set)
    """The partitions of the metadata topic that were found."""
    caches: dict[TopicIdPartition, RemoteLogMetadataCache] = field(default_factory=dict)
    events: dict[RemoteLogSegmentId, list[LoggedEvent]] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)
    leaders: dict[TopicIdPartition, NodeId] = field(default_factory=dict)
    """The brokers that have published in the highest leader epoch, where authors tell theirs."""
    newest_ms: int = 0
    """The time of the newest event."""

    def deleted(self) -> dict[TopicIdPartition, list[RemoteLogSegmentMetadata]]:
        """The segments that were in the tier until their deletion was announced."""
        found: dict[TopicIdPartition, list[RemoteLogSegmentMetadata]] = {}
        for segment_id, events in self.events.items():
            states = {logged.event.state for logged in events if logged.accepted}
            if is_deleted(events) and RemoteLogSegmentState.DELETE_SEGMENT_STARTED in states and _COPIED in states:
                begun = next(logged.event for logged in events if isinstance(logged.event, RemoteLogSegmentMetadata))
                found.setdefault(segment_id.partition, []).append(begun)
        return found

    def segments(self, partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        """The listed segments, by start offset."""
        cache = self.caches.get(partition)
        return [] if cache is None else cache.segments()

    def take(self, number: int, offset: Offset, event: MetadataEvent) -> None:
        """Add the next record of partition ``number``."""
        segment_id = event.segment_id
        cache = self.caches.get(segment_id.partition)
        if cache is None:
            cache = self.caches[segment_id.partition] = RemoteLogMetadataCache()
        void = cache.voids(event)
        accepted = cache.apply(event)
        if event.leader_epoch == cache.claimed != UNFENCED:
            self.leaders[segment_id.partition] = event.broker_id
        self.newest_ms = max(self.newest_ms, event.event_timestamp_ms)
        if isinstance(event, RemoteLogSegmentUpdate) and event.is_claim:
            return
        self.events.setdefault(segment_id, []).append(LoggedEvent(number, offset, event, accepted, void))


def metadata_folders(disk: Disk, log_dirs: Iterable[str]) -> dict[int, list[str]]:
    """The folders of each partition of the metadata topic below ``log_dirs``. Blocks. Raises OSError."""
    found: dict[int, list[str]] = {}
    for log_dir in log_dirs:
        for name in disk.list(log_dir):
            topic, _, digits = name.rpartition("-")
            if topic == REMOTE_LOG_METADATA_TOPIC and digits.isascii() and digits.isdecimal():
                found.setdefault(int(digits), []).append(f"{log_dir}/{name}")
    return found


def read_history(disk: Disk, log_dirs: Sequence[str]) -> MetadataHistory:
    """The contents of the metadata topic in ``log_dirs``. Blocks. Raises OSError."""
    history = MetadataHistory()
    shared: dict[TopicIdPartition, TopicIdPartition] = {}
    for number, folders in sorted(metadata_folders(disk, log_dirs).items()):
        history.numbers.add(number)
        logs = [_read_log(disk, number, folder) for folder in folders]
        longest = max(logs, key=lambda log: log.end)
        history.unreadable += longest.unreadable
        for batch in longest.batches:
            for offset, value in _values(batch, number, history):
                try:
                    event = deserialize(value, offset, shared)
                except UnreadableRemoteLogRecord as error:
                    unknown = isinstance(error, UnknownRemoteLogRecord)
                    history.unreadable.append(Unreadable(number, str(error), unknown))
                    continue
                if event is not None:
                    partition = event.segment_id.partition
                    shared.setdefault(partition, partition)
                    history.take(number, offset, event)
    return history


@dataclass(slots=True)
class _Log:
    batches: list[BatchView] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    end: int = 0


def _read_log(disk: Disk, number: int, folder: str) -> _Log:
    """The batches of one replica with valid checksums. A torn end is normal for a log that is being written."""
    log = _Log()
    names = sorted(name for name in disk.list(folder) if name.endswith(LOG) and offset_of_file(name) is not None)
    for name in names:
        try:
            for batch in iter_batches(memoryview(disk.read(f"{folder}/{name}"))):
                if not batch.is_valid:
                    why = f"{folder}/{name}: the batch at offset {batch.base_offset} has a wrong checksum"
                    log.unreadable.append(Unreadable(number, why))
                    continue
                log.batches.append(batch)
                log.end = max(log.end, batch.next_offset)
        except CorruptBatch as error:
            log.unreadable.append(Unreadable(number, f"{folder}/{name}: {error}"))
    return log


def _values(batch: BatchView, number: int, history: MetadataHistory) -> Iterator[tuple[Offset, bytes | None]]:
    if batch.is_control:
        return
    try:
        for record in iter_records(batch):
            yield offset_of(batch, record), record.value
    except CorruptBatch as error:
        history.unreadable.append(Unreadable(number, f"the batch at offset {batch.base_offset}: {error}"))
