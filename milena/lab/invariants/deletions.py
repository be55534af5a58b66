"""Tracks which broker must delete a deleted topic's segments in the tier.

As in Kafka, it is the leader of each partition at the time of the deletion. If the leader's process ends before that,
or if there was no leader, the followers delete the segments later; simulated runs do not wait for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from milena.broker.controller_link.lifecycle import BrokerState
from milena.lab.invariants.observed_broker import ObservedBroker
from milena.node.metadata.image import MetadataImage, TopicImage


class TopicDeletionDuties:
    """The responsible broker of each deleted partition. ``hosts`` are the present processes of the brokers."""

    def __init__(self, hosts: Mapping[int, ObservedBroker]) -> None:
        self._hosts = hosts
        self._topics: dict[UUID, TopicImage] = {}
        self._erasers: dict[tuple[UUID, int], ObservedBroker | None] = {}

    def image_moved(self, image: MetadataImage) -> None:
        """Record the leaders of topics that the new image has no longer."""
        for topic_id, topic in self._topics.items():
            if topic_id not in image.topics_by_id:
                for index, partition in topic.partitions.items():
                    self._erasers[topic_id, index] = self._serving(partition.leader)
        self._topics = dict(image.topics_by_id)

    def _serving(self, broker: int) -> ObservedBroker | None:
        """Return the broker if it is running. A starting broker treats the topic's logs as stray logs."""
        observed = self._hosts.get(broker)
        return observed if observed is not None and observed.broker.state is BrokerState.RUNNING else None

    def is_excused(self, topic_id: UUID, index: int) -> bool:
        """Whether the segments need not be deleted: the responsible process has ended, or there was none."""
        eraser = self._erasers.get((topic_id, index))
        return eraser is None or not eraser.alive()
