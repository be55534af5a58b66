"""The read positions of the metadata of each partition. State only: ``consumption`` reads.

Several user partitions have their records in one partition of the metadata topic. Each has its own offset from which
records are new to it: when one is assigned later, the reader goes back, and the others skip the records that they have
already applied.
"""

from __future__ import annotations

import asyncio
from typing import Final
from uuid import UUID

from milena.protocol.types import Offset
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)

OUTDATED_AFTER: Final = 1000
"""The number of records by which a snapshot may be behind: at most this many are read again after a restart."""


class FollowedPartition:
    """A user partition whose metadata this broker reads. Its segments are known once ``begin`` was called and ``ready``
    is true."""

    __slots__ = ("_changed", "_moved", "_saved_next", "cache", "gone", "next", "partition", "target")

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.cache = RemoteLogMetadataCache()
        self.next: Offset | None = None
        """The first offset of the metadata partition that has not been read for this partition; None until it is
        known."""
        self.target = Offset(0)
        """The end offset of the metadata partition when this partition was assigned."""
        self.gone = False
        """Whether the partition was unassigned."""
        self._changed = False
        self._saved_next = Offset(0)
        self._moved = asyncio.Event()

    @property
    def ready(self) -> bool:
        return self.next is not None and self.next >= self.target

    @property
    def outdated(self) -> bool:
        """Whether the snapshot on disk is so old that a new one should be written."""
        return self._changed or (self.next is not None and self.next - self._saved_next >= OUTDATED_AFTER)

    def saved(self) -> None:
        """Record that a snapshot of the current state is being written."""
        self._changed, self._saved_next = False, self.next or Offset(0)

    def begin(self, cache: RemoteLogMetadataCache, next_offset: Offset, target: Offset) -> None:
        """Continue from ``cache``, which contains everything before ``next_offset``."""
        self.cache, self.next, self.target = cache, next_offset, target
        self._changed, self._saved_next = False, next_offset
        self._wake()

    def has_read(self, offset: Offset) -> bool:
        """Return whether the record at ``offset`` was read, or whether the partition was unassigned, so that no caller
        has to wait for it."""
        return self.next is None or offset < self.next

    def take(self, offset: Offset, event: RemoteLogSegmentMetadata | RemoteLogSegmentUpdate) -> bool:
        """Apply a record, unless it was read before. Returns False if the record was new and its state transition is
        invalid."""
        if self.has_read(offset):
            return True
        applied = self.cache.apply(event)
        self._changed = self._changed or applied
        return applied

    def advance(self, position: Offset) -> None:
        """Record that all offsets before ``position`` were read."""
        if self.next is not None and position > self.next:
            self.next = position
            self._wake()

    def leave(self) -> None:
        self.gone = True
        self._wake()

    async def wait_moved(self) -> None:
        """Wait until the next change of this state."""
        await self._moved.wait()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


class MetadataPartition:
    """A partition of the metadata topic, and the user partitions with records in it."""

    __slots__ = ("assigned", "followed", "number", "position", "skipped", "topic_id")

    def __init__(self, number: int) -> None:
        self.number = number
        self.followed: dict[TopicIdPartition, FollowedPartition] = {}
        self.assigned = False
        """Whether the consumer reads it."""
        self.position: Offset | None = None
        """The read position that was last passed to the followed partitions."""
        self.topic_id: UUID | None = None
        """The id of the metadata topic when the partition's offsets were looked up."""
        self.skipped = False
        """Whether it has records that this version cannot read: snapshots would hide them from a newer version."""

    @property
    def unlocated(self) -> bool:
        """Whether some followed partition has no start offset yet."""
        return any(partition.next is None for partition in self.followed.values())

    @property
    def beginning(self) -> Offset:
        """The lowest offset that has not been read for all followed partitions."""
        return min(partition.next for partition in self.followed.values() if partition.next is not None)

    def advance(self, position: Offset) -> None:
        if position != self.position:
            self.position = position
            for one in self.followed.values():
                one.advance(position)

    def forget(self) -> None:
        """Start again: the known offsets are not those of the present topic."""
        self.position = self.topic_id = None
        self.skipped = False
        for one in self.followed.values():
            one.next = None
