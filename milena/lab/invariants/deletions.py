"""Topics that were deleted: who had to delete what they have in the tier.

As in Kafka that is whoever leads a partition when its topic goes. Nobody takes it over where that process ends before
it is done, or where nobody leads: then segments stay (docs/GAPS.md).
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
        """One that only starts takes the topic's logs for strays."""
        found = self._hosts.get(broker)
        return found if found is not None and found.broker.state is BrokerState.RUNNING else None

    def is_excused(self, topic_id: UUID, index: int) -> bool:
        """Whether the process that had to do it has ended since, or there was none."""
        eraser = self._erasers.get((topic_id, index))
        return eraser is None or not eraser.alive()
