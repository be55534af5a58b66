"""A plan that reads from the tier and from brokers: the offsets that the tier has are read from the tier, all others
from the brokers."""

from __future__ import annotations

from collections.abc import Iterator

from milena.pipeline.brokers import Brokers
from milena.pipeline.catalogue import Catalogue, KnownPartition
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import SourceOptions
from milena.pipeline.planning import Gap, Stretch
from milena.pipeline.plans import TierPlan, chosen_topics, only_assigned
from milena.protocol.types import ZERO_UUID, Offset, TopicPartition
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.segments.segment_metadata import TopicIdPartition

RECORD_BYTES = 1000
"""The assumed size in bytes of a record that is read from a broker."""


class LivePlan(TierPlan):
    """A plan for the records that the cluster has when the plan is made. Without option ``tier`` all of them are read
    from the brokers."""

    def __init__(self, loop: LoopThread, options: SourceOptions) -> None:
        """Raises PipelineError."""
        self._brokers = Brokers(loop, options)
        self._bounds: dict[TopicPartition, tuple[int, int]] = {}
        super().__init__(loop, options)

    def _open(self) -> Catalogue:
        return Catalogue(self._brokers.tier_metadata(self.partitions()) if self.options.tier else None)

    def partitions(self) -> list[TopicIdPartition]:
        topics = {name: view for name, view in self._brokers.topics().items() if not view.error}
        named = [name for name, view in topics.items() if not (view.internal and self.options.chosen.pattern)]
        names = chosen_topics(self.options.chosen, sorted(named))
        found = [
            TopicIdPartition(topics[name].id or ZERO_UUID, name, number)
            for name in names
            for number in sorted(topics[name].partitions)
        ]
        return only_assigned(self.options.chosen, found)

    def bounds(self, partition: TopicIdPartition) -> tuple[int, int]:
        place = partition.topic, partition.partition
        if place not in self._bounds:
            self._bounds[place] = self._brokers.bounds(*place)
        return self._bounds[place]

    def offset_at(self, partition: TopicIdPartition, timestamp: int) -> int | None:
        return self._brokers.offset_at(partition.topic, partition.partition, timestamp)

    def _look_up(self, partition: TopicIdPartition) -> KnownPartition:
        tier_metadata = self.catalogue.tier_metadata
        cache = None if tier_metadata is None else tier_metadata.cache(partition)
        asked = [] if cache is None else cache.epochs()
        if tier_metadata is None or not asked:
            return KnownPartition(partition)
        epochs = self._brokers.epochs(partition.topic, partition.partition, asked)
        first, end = self.bounds(partition)
        if not epochs:
            return KnownPartition(partition)
        lineage = Lineage(tuple(epochs), Offset(end), "the leader", Offset(first))
        return KnownPartition.of(partition, tier_metadata.parts(partition, lineage), lineage)

    def stretches(
        self, partition: TopicIdPartition, first: int, end: int, since: int | None = None
    ) -> Iterator[Stretch | Gap]:
        known = self.known(partition)
        tier_end = min(max(first, known.end), end)
        if tier_end > first:
            for one in super().stretches(partition, first, tier_end, since):
                yield one if isinstance(one, Stretch) else self._served(partition, one.first, one.last)
        if tier_end < end:
            yield self._served(partition, tier_end, end - 1)

    def _served(self, partition: TopicIdPartition, first: int, last: int) -> Stretch:
        return Stretch(partition, first, last, (last - first + 1) * RECORD_BYTES, committed=self.options.committed)


def plan_of(loop: LoopThread, options: SourceOptions) -> TierPlan:
    """Return the plan for ``options``. Raises PipelineError."""
    return LivePlan(loop, options) if options.bootstrap else TierPlan(loop, options)
