"""Tracks which broker has to delete a deleted topic's segments in the tier.

As in Kafka, that is the leader of each partition when the topic is deleted. If that process ends before it is done, or
if there is no leader, the followers take over after a while, which no run waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from milena.broker.controller_link.lifecycle import BrokerState
from milena.lab.invariants.hosted import Hosted
from milena.node.metadata.image import MetadataImage, TopicImage


class TopicDeletionDuties:
    """``hosts`` are the present processes of the brokers."""

    def __init__(self, hosts: Mapping[int, Hosted]) -> None:
        self._hosts = hosts
        self._topics: dict[UUID, TopicImage] = {}
        self._erasers: dict[tuple[UUID, int], Hosted | None] = {}

    def image_moved(self, image: MetadataImage) -> None:
        for topic_id, topic in self._topics.items():
            if topic_id not in image.topics_by_id:
                for index, partition in topic.partitions.items():
                    self._erasers[topic_id, index] = self._serving(partition.leader)
        self._topics = dict(image.topics_by_id)

    def _serving(self, broker: int) -> Hosted | None:
        """The broker if it is running: one that is starting treats the topic's logs as strays."""
        found = self._hosts.get(broker)
        return found if found is not None and found.broker.state is BrokerState.RUNNING else None

    def is_excused(self, topic_id: UUID, index: int) -> bool:
        """Whether the responsible process has ended since, or there was none."""
        eraser = self._erasers.get((topic_id, index))
        return eraser is None or not eraser.alive()
