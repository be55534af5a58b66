"""What a plan has read of the metadata topic and worked out of it, kept in the process for the next plan of the same
kind: that of a stream's next trigger, which then reads what has come since.

One is kept at a time. A plan has it for itself and gives it back at its end, so two plans side by side never share one:
the later one reads everything.
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
    """What a cache serves under a lineage. ``changes``: of the cache, as of which the rest holds."""

    cache: RemoteLogMetadataCache
    changes: int
    log_end: int
    """Behind all segments, or where the lineage ends before."""
    furthest: int
    """Behind all segments."""
    epochs: Sequence[EpochEntry]
    parts: Sequence[Stretch]


@dataclass(slots=True)
class TierMetadata:
    """The events of the metadata topic, and what follows from them as long as nothing else comes."""

    decoder: EventDecoder
    _served_parts: dict[TopicIdPartition, ServedParts] = field(default_factory=dict)
    _of_tier: dict[TopicIdPartition, tuple[RemoteLogMetadataCache, int, Lineage | None]] = field(default_factory=dict)

    def cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache | None:
        """None if the topic says nothing of it."""
        events = self.decoder.partitions.get(partition)
        return None if events is None else events.cache

    def leader(self, partition: TopicIdPartition) -> NodeId | None:
        """The broker that has published in the highest leader epoch, where authors tell theirs."""
        events = self.decoder.partitions.get(partition)
        return None if events is None else events.leader

    def partitions(self) -> Set[TopicIdPartition]:
        """Those with segments; of topics that are not wanted, those that had any."""
        return {one for one, events in self.decoder.partitions.items() if len(events.cache)} | self.decoder.unwanted

    def parts(self, partition: TopicIdPartition, lineage: Lineage) -> Sequence[Stretch]:
        """What the tier serves of a log, in order. It is worked out again if there was news of it."""
        cache = self.cache(partition)
        assert cache is not None
        known = self._served_parts.get(partition)
        if known is not None and (known.cache is not cache or known.changes != cache.changes):
            known = None
        furthest = known.furthest if known is not None else cache.end()
        log_end = min(lineage.log_end, furthest)  # where else a log ends beside the tier is all the same
        if known is None or known.log_end != log_end or known.epochs != lineage.epochs:
            parts = resolved(partition, cache, lineage.epochs, log_end)
            known = self._served_parts[partition] = ServedParts(
                cache, cache.changes, log_end, furthest, lineage.epochs, parts
            )
        return known.parts

    def tier_lineage(self, partition: TopicIdPartition) -> Lineage | None:
        """What was ``keep``-ed, if there was no news of the partition since."""
        cache, changes, lineage = self._of_tier.get(partition, (None, 0, None))
        return lineage if cache is not None and cache is self.cache(partition) and changes == cache.changes else None

    def keep(self, partition: TopicIdPartition, lineage: Lineage | None) -> None:
        """The lineage that the tier tells: its objects do not change."""
        cache = self.cache(partition)
        assert cache is not None
        self._of_tier[partition] = cache, cache.changes, lineage


def wants(chosen: Chosen, topic: str) -> bool:
    """Whether partitions of a topic may be among those that are chosen."""
    if chosen.pattern:
        return re.fullmatch(chosen.pattern, topic) is not None
    return topic in chosen.topics or any(topic == name for name, _ in chosen.partitions)


class PlanCache:
    """Has room for one object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[Hashable, object] | None = None

    def take(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was put here under ``key``, which must say its type, too; or else a new one. What was put under another
        key is dropped first: both may be large."""
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
"""Of this process."""
