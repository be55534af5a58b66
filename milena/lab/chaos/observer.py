"""Notes changes of leaders, leader epochs, ISRs and registrations, for the time axis of a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from milena.client.cluster import ClusterView
from milena.lab.histories.seen import BrokerSeen, PartitionSeen
from milena.node.metadata.image import MetadataImage
from milena.protocol.types import TopicPartition

Seen: TypeAlias = PartitionSeen | BrokerSeen


class Observer:
    """Notes each change once. The sources are the brokers' answers to Metadata, or the controller's image."""

    def __init__(self, keep: Callable[[Seen], object], now: Callable[[], float]) -> None:
        """``now``: the time of the history, in seconds."""
        self._keep = keep
        self._now = now
        self._partitions: dict[TopicPartition, tuple[int, int, tuple[int, ...]]] = {}
        self._fenced: dict[int, bool] = {}

    def image(self, image: MetadataImage) -> None:
        """Note what an image of the controller has changed."""
        for broker in image.brokers.values():
            self._broker(broker.id, fenced=broker.fenced)
        for name, topic in image.topics.items():
            for number, found in topic.partitions.items():
                self._partition((name, number), found.leader, found.leader_epoch, found.isr)

    def views(self, views: Sequence[ClusterView | None], brokers: Sequence[int]) -> None:
        """Note what the brokers' metadata has changed. ``views``: of each of the brokers; None: it did not answer. A
        partition is as its leader reports it, if it reports the newest leader epoch."""
        known = {broker: view for broker, view in zip(brokers, views, strict=True) if view is not None}
        for broker in brokers if known else ():
            self._broker(broker, fenced=any(broker not in view.brokers for view in known.values()))
        newest: dict[TopicPartition, tuple[tuple[int, bool], tuple[int, int, tuple[int, ...]]]] = {}
        for broker, view in known.items():
            for name, topic in view.topics.items():
                for number, found in topic.partitions.items():
                    rank = (found.leader_epoch, found.leader == broker)
                    if rank > newest.get((name, number), ((-2, False), None))[0]:
                        newest[name, number] = (rank, (found.leader, found.leader_epoch, tuple(found.isr)))
        for place, (_, state) in newest.items():
            self._partition(place, *state)

    def _partition(self, place: TopicPartition, leader: int, epoch: int, isr: tuple[int, ...]) -> None:
        state = (leader, epoch, tuple(sorted(isr)))
        if self._partitions.get(place) != state:
            self._partitions[place] = state
            self._keep(PartitionSeen(place, self._now(), *state))

    def _broker(self, broker: int, *, fenced: bool) -> None:
        if self._fenced.get(broker) != fenced:
            self._fenced[broker] = fenced
            self._keep(BrokerSeen(broker, self._now(), fenced))
