"""The port behind which the metadata of remote segments is kept (Kafka's RemoteLogMetadataManager)."""

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
    """The metadata could not be written, or not be seen to be written. To be tried again later: a record that was
    written all the same does no harm."""


class MetadataNotReady(RemoteLogMetadataError):
    """What is known of this partition's segments is not complete yet, or nothing is kept of it here."""


class RemoteLogMetadataManager(Protocol):
    """Metadata of the partitions that this broker leads or follows."""

    async def add(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Publish a segment whose copy begins. Returns when it is in ``cache`` too.

        Raises RemoteLogMetadataError, and ValueError for any state but COPY_SEGMENT_STARTED.
        """
        ...

    async def update(self, update: RemoteLogSegmentUpdate) -> None:
        """Publish a later state. Returns when it is in ``cache`` too. An update that must not follow is dropped
        there, as every reader of the metadata does.

        Raises RemoteLogMetadataError, and ValueError for COPY_SEGMENT_STARTED.
        """
        ...

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Whether ``cache`` has all that was published before the partition was assigned."""
        ...

    async def wait_ready(self, partition: TopicIdPartition, seconds: float) -> bool:
        """The same, after up to ``seconds``."""
        ...

    def cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        """The segments of a partition; not to be changed. Raises MetadataNotReady."""
        ...

    def assign(self, led: Iterable[TopicIdPartition], followed: Iterable[TopicIdPartition]) -> None:
        """Keep the metadata of these partitions from now on, beside those assigned before."""
        ...

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Keep nothing more of these."""
        ...

    def start(self) -> None:
        """Begin. Nothing is sent before the first partition is assigned."""
        ...

    async def stop(self) -> None:
        """End. What waits ends with RemoteLogMetadataError."""
        ...
