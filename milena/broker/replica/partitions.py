"""The registry of all replicas of this broker (Kafka's ReplicaManager.allPartitions)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

from milena.broker.replica.partition import Partition
from milena.node.metadata.image import MetadataImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.storage.log.context import NamedLog


class PartitionSet:
    """Hosted partitions by topic name and index."""

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
            raise BrokenInvariant(f"{partition} is added twice: {self._hosted[key]} exists")
        self._hosted[key] = partition

    def remove(self, partition: Partition) -> None:
        """Remove a partition and notify the operations that wait for it."""
        if self._hosted.get((partition.topic, partition.index)) is partition:
            del self._hosted[partition.topic, partition.index]
        partition.stop()

    def find(self, topic: str, index: int) -> Partition | None:
        """The hosted partition, or None."""
        return self._hosted.get((topic, index))

    def of_log(self, log: NamedLog) -> Partition | None:
        """The partition whose current log is ``log``, or None."""
        partition = self.find(log.topic, log.partition)
        return partition if partition is not None and partition.log is log else None

    def get(self, topic: str, index: int) -> Partition:
        """The hosted partition. Raises KafkaError NOT_LEADER_OR_FOLLOWER if only other brokers host it (or this one
        does not host it yet), and UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
        partition = self._hosted.get((topic, index))
        if partition is not None:
            return partition
        topic_image = self._image().topics.get(topic)
        if topic_image is not None and index in topic_image.partitions:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def get_for_write(self, topic: str, index: int) -> Partition:
        """The hosted partition of the topic that has this name now. A partition of an earlier topic of the name, which
        this broker still removes, would lose the records. Raises the errors of ``get``."""
        partition = self.get(topic, index)
        current = self._image().topics.get(topic)
        if current is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.topic_id is not current.id and partition.topic_id != current.id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    def get_by_id(self, topic_id: UUID, index: int) -> Partition:
        """The hosted partition. Raises KafkaError UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID (this broker still hosts an
        earlier topic of the same name), and the errors of ``get``."""
        partition = self.get(self.name_of(topic_id), index)
        if partition.topic_id != topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def name_of(self, topic_id: UUID) -> str:
        """The name of a topic. Raises KafkaError UNKNOWN_TOPIC_ID."""
        topic = self._image().topics_by_id.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic.name
