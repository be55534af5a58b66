"""Segments that are in the tier and must not be counted on: their deletion has begun, or a broker may begin it.

A topic whose tier is switched off and soon on again (KIP-950) has segments that look whole, while the record that tells
of their deletion is on its way: to the broker that wrote it, too. What was there when the tier was switched off is
therefore read, but never counts as a copy of what lies here; the leader copies that again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from uuid import UUID

from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.segment_metadata import TopicIdPartition


class GivenUp:
    """As one broker knows it, since its start."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments: dict[TopicIdPartition, set[UUID]] = {}

    def add(self, partition: TopicIdPartition, segments: Iterable[UUID]) -> None:
        self._segments.setdefault(partition, set()).update(segments)

    def of(self, partition: TopicIdPartition) -> Container[UUID]:
        return self._segments.get(partition, ())

    def prune(self, partition: TopicIdPartition, cache: RemoteLogMetadataCache) -> None:
        """Forget those that are listed no more in ``cache``, which must be ready."""
        left = {one for one in self._segments.get(partition, ()) if cache.get(one) is not None}
        if left:
            self._segments[partition] = left
        else:
            self._segments.pop(partition, None)

    def forget(self, partition: TopicIdPartition) -> None:
        """The topic is gone."""
        self._segments.pop(partition, None)
