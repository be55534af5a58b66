"""All events in the topic ``__remote_log_metadata``, as verification and restoring need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from milena.protocol.types import NodeId, Offset
from milena.runtime.disk import Disk
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.serialization import MetadataEvent, deserialize
from milena.tiered.offline.metadata_reader import Apply, MetadataReader, Unreadable
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
    ``fenced``: whether it follows the fence of a later leader."""

    number: int
    offset: Offset
    event: MetadataEvent
    accepted: bool
    fenced: bool = False


def is_deleted(events: Iterable[LoggedEvent]) -> bool:
    """Whether a leader announced the deletion of a segment, and none republished the segment afterwards. ``events``:
    those of the segment, in order."""
    deleted = False
    for logged in events:
        if logged.fenced:
            continue
        if isinstance(logged.event, RemoteLogSegmentUpdate) and logged.event.republishes and logged.accepted:
            deleted = False
        deleted = deleted or logged.event.state in DELETIONS
    return deleted


@dataclass(slots=True)
class MetadataHistory:
    """All events in the metadata topic."""

    numbers: set[int] = field(default_factory=set)
    """The partitions of the metadata topic that were found."""
    caches: dict[TopicIdPartition, RemoteLogMetadataCache] = field(default_factory=dict)
    events: dict[RemoteLogSegmentId, list[LoggedEvent]] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)
    leaders: dict[TopicIdPartition, NodeId] = field(default_factory=dict)
    """The brokers that published in the highest leader epoch, for partitions whose events have leader epochs."""
    newest_ms: int = 0
    """The time of the newest event."""
    _shared: dict[TopicIdPartition, TopicIdPartition] = field(default_factory=dict)

    def deleted(self) -> dict[TopicIdPartition, list[RemoteLogSegmentMetadata]]:
        """Return the segments that were in the tier until DELETE_SEGMENT_STARTED, by partition."""
        found: dict[TopicIdPartition, list[RemoteLogSegmentMetadata]] = {}
        for segment_id, events in self.events.items():
            states = {logged.event.state for logged in events if logged.accepted}
            if is_deleted(events) and RemoteLogSegmentState.DELETE_SEGMENT_STARTED in states and _COPIED in states:
                begun = next(logged.event for logged in events if isinstance(logged.event, RemoteLogSegmentMetadata))
                found.setdefault(segment_id.partition, []).append(begun)
        return found

    def segments(self, partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        """Return the listed segments of a partition, by start offset."""
        cache = self.caches.get(partition)
        return [] if cache is None else cache.segments()

    def applier(self, number: int) -> Apply:
        """Return the function that adds the next record of partition ``number`` of the metadata topic."""
        return partial(self._take_record, number)

    def _take_record(self, number: int, value: bytes | None, offset: Offset) -> None:
        """Decode and add a record. Raises UnreadableRemoteLogRecord."""
        event = deserialize(value, offset, self._shared)
        if event is not None:
            self._shared.setdefault(event.segment_id.partition, event.segment_id.partition)
            self.take(number, offset, event)

    def take(self, number: int, offset: Offset, event: MetadataEvent) -> None:
        """Add the next event of partition ``number`` of the metadata topic."""
        segment_id = event.segment_id
        cache = self.caches.get(segment_id.partition)
        if cache is None:
            cache = self.caches[segment_id.partition] = RemoteLogMetadataCache()
        fenced = cache.is_fenced(event)
        accepted = cache.apply(event)
        if event.leader_epoch == cache.fence_epoch != UNFENCED:
            self.leaders[segment_id.partition] = event.broker_id
        self.newest_ms = max(self.newest_ms, event.event_timestamp_ms)
        if isinstance(event, RemoteLogSegmentUpdate) and event.is_fence:
            return
        self.events.setdefault(segment_id, []).append(LoggedEvent(number, offset, event, accepted, fenced))


def read_history(disk: Disk, log_dirs: Sequence[str]) -> MetadataHistory:
    """Return the contents of the metadata topic in ``log_dirs``, and its damage. Blocks. Raises OSError."""
    reader = MetadataReader(MetadataHistory)
    reader.read_on(disk, log_dirs)
    history = reader.contents
    history.numbers, history.unreadable = set(reader.numbers), reader.unreadable
    return history
