"""How far the metadata of each partition has been read. Plain state: ``consumption`` does the reading.

Several user partitions have their records in one partition of the metadata topic. Each counts for itself from which
offset on records are new to it: one that is assigned later makes the reader go back, and the others see again what they
have seen.
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
"""Records of others that a snapshot may be behind: so many are read again after a restart."""


class FollowedPartition:
    """A user partition whose segments are known here, once ``begin`` was called and ``ready`` is true."""

    __slots__ = ("_changed", "_moved", "_saved_next", "cache", "gone", "next", "partition", "target")

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.cache = RemoteLogMetadataCache()
        self.next: Offset | None = None
        """The first offset of the metadata partition that has not been read for it; None before that is known."""
        self.target = Offset(0)
        """Where the metadata partition ended when this one was assigned."""
        self.gone = False
        """Not assigned any more."""
        self._changed = False
        self._saved_next = Offset(0)
        self._moved = asyncio.Event()

    @property
    def ready(self) -> bool:
        return self.next is not None and self.next >= self.target

    @property
    def outdated(self) -> bool:
        """A snapshot is due."""
        return self._changed or (self.next is not None and self.next - self._saved_next >= OUTDATED_AFTER)

    def saved(self) -> None:
        """A snapshot of what is here now is being written."""
        self._changed, self._saved_next = False, self.next or Offset(0)

    def begin(self, cache: RemoteLogMetadataCache, next_offset: Offset, target: Offset) -> None:
        """Go on with ``cache``, which has everything before ``next_offset``."""
        self.cache, self.next, self.target = cache, next_offset, target
        self._changed, self._saved_next = False, next_offset
        self._wake()

    def has_read(self, offset: Offset) -> bool:
        """Whether a record at ``offset`` is none that it waits for."""
        return self.next is None or offset < self.next

    def take(self, offset: Offset, event: RemoteLogSegmentMetadata | RemoteLogSegmentUpdate) -> bool:
        """A record, unless it was read before. False where it was new and must not follow what is known."""
        if self.has_read(offset):
            return True
        applied = self.cache.apply(event)
        self._changed = self._changed or applied
        return applied

    def advance(self, position: Offset) -> None:
        """Everything before ``position`` was read."""
        if self.next is not None and position > self.next:
            self.next = position
            self._wake()

    def leave(self) -> None:
        self.gone = True
        self._wake()

    async def wait_moved(self) -> None:
        """Until the next change of any of this."""
        await self._moved.wait()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


class MetadataPartition:
    """A partition of the metadata topic, and the user partitions that have their records in it."""

    __slots__ = ("assigned", "followed", "number", "position", "skipped", "topic_id")

    def __init__(self, number: int) -> None:
        self.number = number
        self.followed: dict[TopicIdPartition, FollowedPartition] = {}
        self.assigned = False
        """The consumer reads it."""
        self.position: Offset | None = None
        """How far its followed partitions have been told."""
        self.topic_id: UUID | None = None
        """Of the metadata topic that it was found in."""
        self.skipped = False
        """It has records that nobody here can read: snapshots would hide them from a newer version of ourselves."""

    @property
    def unlocated(self) -> bool:
        """Some followed partition does not know where to begin."""
        return any(one.next is None for one in self.followed.values())

    @property
    def beginning(self) -> Offset:
        """The least offset that some followed partition has yet to read."""
        return min(one.next for one in self.followed.values() if one.next is not None)

    def advance(self, position: Offset) -> None:
        if position != self.position:
            self.position = position
            for one in self.followed.values():
                one.advance(position)

    def forget(self) -> None:
        """Begin anew: the offsets that were known are not those of the topic any more."""
        self.position = self.topic_id = None
        self.skipped = False
        for one in self.followed.values():
            one.next = None
