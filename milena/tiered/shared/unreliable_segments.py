"""Segments in the tier that must not be relied on: their deletion has started, or a broker may start it.

If a topic's tier is disabled and soon enabled again (KIP-950), its segments look whole while the records that announce
their deletion are still on the way, even to the broker that wrote them. So segments that existed when the tier was
disabled are read, but never count as copies of local segments; the leader copies those again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.segment_metadata import TopicIdPartition


class UnreliableSegments:
    """The unreliable segments that one broker has learned of since its start."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments: dict[TopicIdPartition, set[UUID]] = {}

    def add(self, partition: TopicIdPartition, segments: Iterable[UUID]) -> None:
        self._segments.setdefault(partition, set()).update(segments)

    def discard(self, partition: TopicIdPartition, segment: UUID) -> None:
        """Remove a segment, because its deletion was not announced."""
        self._segments.get(partition, set()).discard(segment)

    def of(self, partition: TopicIdPartition) -> Collection[UUID]:
        return self._segments.get(partition, ())

    def prune(self, partition: TopicIdPartition, cache: RemoteLogMetadataCache) -> None:
        """Remove the segments that are not listed any more in ``cache``, which must be ready."""
        left = {segment for segment in self._segments.get(partition, ()) if cache.get(segment) is not None}
        if left:
            self._segments[partition] = left
        else:
            self._segments.pop(partition, None)

    def forget(self, partition: TopicIdPartition) -> None:
        """Remove all segments of a partition whose topic was deleted."""
        self._segments.pop(partition, None)
