"""The port for the metadata of remote segments (Kafka's RemoteLogMetadataManager)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)


class RemoteLogMetadataError(Exception):
    """The metadata could not be written, or the write could not be confirmed by reading it back. The caller retries
    later; a record that was written nevertheless does no harm."""


class MetadataNotReady(RemoteLogMetadataError):
    """The metadata of this partition's segments is not complete yet, or the partition is not assigned."""


class Deposed(RemoteLogMetadataError):
    """A leader of a higher epoch has published its fence: the events of this broker have no effect."""


class RemoteLogMetadataManager(Protocol):
    """Manages the metadata of the partitions that this broker leads or follows."""

    async def add(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Publish a segment whose copy starts. Returns once ``cache`` contains it.

        Raises RemoteLogMetadataError, and ValueError for any state except COPY_SEGMENT_STARTED.
        """
        ...

    async def update(self, update: RemoteLogSegmentUpdate) -> None:
        """Publish a later state, or a leader epoch fence. Returns once ``cache`` contains it. The cache ignores invalid
        state transitions and fenced updates, as every reader of the metadata does.

        Raises RemoteLogMetadataError, and ValueError for COPY_SEGMENT_STARTED.
        """
        ...

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Whether ``cache`` contains everything that was published before the partition was assigned."""
        ...

    async def wait_ready(self, partition: TopicIdPartition, seconds: float) -> bool:
        """Wait up to ``seconds`` until the partition is ready, and return whether it is."""
        ...

    def cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        """The segments of a partition; read-only. Raises MetadataNotReady."""
        ...

    async def is_empty(self) -> bool:
        """Whether no broker has ever published a record in the metadata topic. Raises RemoteLogMetadataError if that is
        not known."""
        ...

    def assign(self, led: Iterable[TopicIdPartition], followed: Iterable[TopicIdPartition]) -> None:
        """Keep the metadata of these partitions from now on, in addition to those assigned before."""
        ...

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Stop keeping the metadata of these partitions."""
        ...

    def start(self) -> None:
        """Start the manager. It sends no request before the first partition is assigned."""
        ...

    async def restart(self) -> None:
        """Stop and start again, because the metadata topic was deleted. Nothing is assigned afterwards."""
        ...

    async def stop(self) -> None:
        """Stop the manager. Pending calls raise RemoteLogMetadataError."""
        ...
