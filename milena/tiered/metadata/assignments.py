"""The user partitions whose metadata this broker keeps, by partition of the metadata topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from milena.tiered.metadata.metadata_partitioner import metadata_partition
from milena.tiered.metadata.partition_names import partition_bytes
from milena.tiered.metadata.read_positions import FollowedPartition, MetadataPartition
from milena.tiered.segments.segment_metadata import TopicIdPartition


class Assignments:
    """The assignments of one broker. ``partitions``: the number of partitions of the metadata topic."""

    def __init__(self, partitions: int) -> None:
        self.by_number: dict[int, MetadataPartition] = {}
        self.shared: dict[TopicIdPartition, TopicIdPartition] = {}
        """The assigned partitions, each mapped to itself. Equal objects that were decoded from records are replaced by
        these, to save memory."""
        self.changed = asyncio.Event()
        """Set if a partition was assigned and is not read yet, or a metadata partition has nothing more to read."""
        self._partitions = partitions
        self._followed: dict[TopicIdPartition, FollowedPartition] = {}
        self._named: dict[bytes, FollowedPartition] = {}

    def named(self, by: bytes) -> FollowedPartition | None:
        """Return the assigned partition that has these bytes in records (``partition_names.partition_bytes``); None if
        there is none."""
        return self._named.get(by)

    def find(self, partition: TopicIdPartition) -> FollowedPartition | None:
        return self._followed.get(partition)

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Also read the metadata of these partitions."""
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
        """Stop keeping the metadata of these partitions, and wake the tasks that wait for it."""
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
