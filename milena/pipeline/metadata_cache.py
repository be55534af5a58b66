"""Keeps the metadata that one plan has read for the next plan in the same process: the plan of a stream's next trigger
then reads only new records of the metadata topic.

Only the metadata of one plan are kept. A plan takes them out of the cache and puts them back at its end, so two
concurrent plans never share them: the second plan reads everything.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, TypeVar

from milena.pipeline.options import Chosen
from milena.pipeline.planning import Stretch, resolved
from milena.protocol.types import NodeId
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.event_decoder import EventDecoder
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.segments.segment_metadata import TopicIdPartition

T = TypeVar("T")


@dataclass(slots=True)
class ServedParts:
    """The stretches of a partition for one epoch chain. They are valid as long as ``cache.changes`` has not changed."""

    cache: RemoteLogMetadataCache
    changes: int
    log_end: int
    """The offset after all segments, or the end of the lineage if that is lower."""
    furthest: int
    """The offset after all segments."""
    epochs: Sequence[EpochEntry]
    parts: Sequence[Stretch]


@dataclass(slots=True)
class TierMetadata:
    """The metadata of the segments in the tier, and results that stay valid until a partition has new events."""

    decoder: EventDecoder
    _served_parts: dict[TopicIdPartition, ServedParts] = field(default_factory=dict)
    _of_tier: dict[TopicIdPartition, tuple[RemoteLogMetadataCache, int, Lineage | None]] = field(default_factory=dict)

    def cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache | None:
        """Return the segments of a partition; None if the metadata topic has no event of it."""
        events = self.decoder.partitions.get(partition)
        return None if events is None else events.cache

    def leader(self, partition: TopicIdPartition) -> NodeId | None:
        """Return the broker that published in the highest leader epoch; None if no event has a leader epoch."""
        events = self.decoder.partitions.get(partition)
        return None if events is None else events.leader

    def partitions(self) -> Set[TopicIdPartition]:
        """Return the partitions that have segments. For topics that were not selected, whose segments are not decoded,
        return the partitions that have any event."""
        return {one for one, events in self.decoder.partitions.items() if len(events.cache)} | self.decoder.unwanted

    def emptied(self) -> set[TopicIdPartition]:
        """Return the selected partitions that have events but no segments: all were deleted, or none was ever
        announced."""
        return {one for one, events in self.decoder.partitions.items() if not len(events.cache)}

    def parts(self, partition: TopicIdPartition, lineage: Lineage) -> Sequence[Stretch]:
        """Return the stretches of a log in the tier, in order. They are cached until the partition has new events."""
        cache = self.cache(partition)
        assert cache is not None
        known = self._served_parts.get(partition)
        if known is not None and (known.cache is not cache or known.changes != cache.changes):
            known = None
        furthest = known.furthest if known is not None else cache.end()
        log_end = min(lineage.log_end, furthest)  # a log end offset above all segments has no effect
        if known is None or known.log_end != log_end or known.epochs != lineage.epochs:
            parts = resolved(partition, cache, lineage.epochs, log_end)
            known = self._served_parts[partition] = ServedParts(
                cache, cache.changes, log_end, furthest, lineage.epochs, parts
            )
        return known.parts

    def tier_lineage(self, partition: TopicIdPartition) -> Lineage | None:
        """Return the epoch chain that was passed to ``keep``; None if the partition has had new events since."""
        cache, changes, lineage = self._of_tier.get(partition, (None, 0, None))
        return lineage if cache is not None and cache is self.cache(partition) and changes == cache.changes else None

    def keep(self, partition: TopicIdPartition, lineage: Lineage | None) -> None:
        """Cache the epoch chain that was read from the tier's objects, which do not change."""
        cache = self.cache(partition)
        assert cache is not None
        self._of_tier[partition] = cache, cache.changes, lineage


def wants(chosen: Chosen, topic: str) -> bool:
    """Whether partitions of a topic may be chosen."""
    if chosen.pattern:
        return re.fullmatch(chosen.pattern, topic) is not None
    return topic in chosen.topics or any(topic == name for name, _ in chosen.partitions)


class PlanCache:
    """A cache of one object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[Hashable, object] | None = None

    def take(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return and remove the object that was put under ``key``, or a new one. An object under another key is dropped
        first, since both may be large. The key determines the type of the object."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None and held[0] == key:
            return held[1]  # type: ignore[return-value]
        del held
        return make()

    def put(self, key: Hashable, kept: object) -> None:
        with self._lock:
            self._held = key, kept


PLAN_CACHE: Final = PlanCache()
"""The cache of this process."""
