"""Which partitions' metadata is kept here, by the partition of the metadata topic that has it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from milena.tiered.metadata.metadata_partitioner import metadata_partition
from milena.tiered.metadata.partition_names import partition_bytes
from milena.tiered.metadata.progress import FollowedPartition, MetadataPartition
from milena.tiered.segments.segment_metadata import TopicIdPartition


class Assignments:
    """Of one broker. ``partitions`` is the number of the metadata topic's."""

    def __init__(self, partitions: int) -> None:
        self.by_number: dict[int, MetadataPartition] = {}
        self.shared: dict[TopicIdPartition, TopicIdPartition] = {}
        """The assigned ones, each under itself: records name equal ones, for which these objects are taken."""
        self.changed = asyncio.Event()
        """Something was assigned that is not read yet, or nothing is left to read of some metadata partition."""
        self._partitions = partitions
        self._followed: dict[TopicIdPartition, FollowedPartition] = {}
        self._named: dict[bytes, FollowedPartition] = {}

    def named(self, by: bytes) -> FollowedPartition | None:
        """The partition that records name so (``partition_names.partition_bytes``)."""
        return self._named.get(by)

    def find(self, partition: TopicIdPartition) -> FollowedPartition | None:
        return self._followed.get(partition)

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Read the metadata of these too."""
        for partition in partitions:
            if partition in self._followed:
                continue
            number = metadata_partition(partition, self._partitions)
            source = self.by_number.get(number)
            if source is None:
                source = self.by_number[number] = MetadataPartition(number)
            followed = FollowedPartition(partition)
            self._followed[partition] = source.followed[partition] = followed
            self._named[partition_bytes(partition)] = followed
            self.shared[partition] = partition
            self.changed.set()

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Keep nothing more of these. Who waits for them wakes."""
        for partition in partitions:
            followed = self._followed.pop(partition, None)
            if followed is None:
                continue
            del self.shared[partition], self._named[partition_bytes(partition)]
            number = metadata_partition(partition, self._partitions)
            source = self.by_number[number]
            del source.followed[partition]
            if not source.followed:
                del self.by_number[number]
                self.changed.set()
            followed.leave()
