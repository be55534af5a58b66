"""All replicas of this broker: Kafka's replica manager without the fetchers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

from milena.broker.replica.partition import Partition
from milena.node.metadata.image import MetadataImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.storage.log.context import NamedLog


class PartitionSet:
    """Hosted partitions by name, with Kafka's errors for those that are not hosted."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._hosted: dict[tuple[str, int], Partition] = {}

    def __len__(self) -> int:
        return len(self._hosted)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._hosted.values())

    def add(self, partition: Partition) -> None:
        key = partition.topic, partition.index
        if key in self._hosted:
            raise BrokenInvariant(f"{partition} is hosted already, as {self._hosted[key]}")
        self._hosted[key] = partition

    def remove(self, partition: Partition) -> None:
        """Forget a partition and notify the operations that wait for it. Does nothing if it is missing."""
        if self._hosted.get((partition.topic, partition.index)) is partition:
            del self._hosted[partition.topic, partition.index]
        partition.stop()

    def find(self, topic: str, index: int) -> Partition | None:
        return self._hosted.get((topic, index))

    def of_log(self, log: NamedLog) -> Partition | None:
        """The partition whose log this is; None if it now has another log."""
        found = self.find(log.topic, log.partition)
        return found if found is not None and found.log is log else None

    def get(self, topic: str, index: int) -> Partition:
        """Raises KafkaError NOT_LEADER_OR_FOLLOWER if the partition is on other brokers (or not here yet), and
        UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
        found = self._hosted.get((topic, index))
        if found is not None:
            return found
        known = self._image().topics.get(topic)
        if known is not None and index in known.partitions:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def get_by_id(self, topic_id: UUID, index: int) -> Partition:
        """Raises KafkaError UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID (an earlier topic of the same name is still here),
        and the errors of ``get``."""
        found = self.get(self.name_of(topic_id), index)
        if found.topic_id != topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return found

    def name_of(self, topic_id: UUID) -> str:
        """Raises KafkaError UNKNOWN_TOPIC_ID."""
        topic = self._image().topics_by_id.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic.name
