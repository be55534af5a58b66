"""Fields of Metadata and DescribeTopicPartitions responses for one listener (Kafka's KRaftMetadataCache): available
brokers, leaders, offline replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from milena.node.metadata.image import BrokerImage, ListenerImage, MetadataImage, PartitionImage, TopicImage
from milena.protocol.errors import ErrorCode
from milena.protocol.types import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC

if TYPE_CHECKING:
    from milena.protocol.apis import DescribeTopicPartitionsResponsePartitionFields, MetadataResponseTopicFields

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC})

TOPIC_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""A bit field of all operations on a topic (AclOperation codes): without an authorizer, all are allowed."""
CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
NOT_REQUESTED: Final = -(1 << 31)
"""In place of the operations, if the request does not ask for them."""


def unfenced_brokers(image: MetadataImage, listener: str) -> list[tuple[BrokerImage, ListenerImage]]:
    """The unfenced brokers that have this listener, sorted by id."""
    brokers = []
    for _, broker in sorted(image.brokers.items()):
        endpoint = broker.endpoint(listener)
        if endpoint is not None and not broker.fenced:
            brokers.append((broker, endpoint))
    return brokers


class PartitionView:
    """Builds the fields of partitions for one response. The brokers' states are determined once."""

    def __init__(self, image: MetadataImage, listener: str, *, filter_dead: bool, name_listeners: bool) -> None:
        """``filter_dead``: omit unavailable replicas (Metadata v0). ``name_listeners``: report a leader that exists but
        lacks the listener with LISTENER_NOT_FOUND (v6 and later)."""
        self._image = image
        self._listener = listener
        self._filter_dead = filter_dead
        self._name_listeners = name_listeners
        self._reachable = {broker.id for broker in image.brokers.values() if broker.endpoint(listener) is not None}
        self._unfenced = {broker for broker in self._reachable if not image.brokers[broker].fenced}

    def partition(self, index: int, partition: PartitionImage) -> DescribeTopicPartitionsResponsePartitionFields:
        """The fields of one partition that both APIs have."""
        replicas, isr = list(partition.replicas), list(partition.isr)
        error = ErrorCode.NONE
        leader = int(partition.leader)
        # As in Kafka, a fenced leader with the listener is still returned as the leader.
        if leader not in self._reachable:
            error = ErrorCode.LEADER_NOT_AVAILABLE
            if self._name_listeners and leader in self._image.brokers:
                error = ErrorCode.LISTENER_NOT_FOUND
            leader = -1
        if self._filter_dead:
            replicas = [replica for replica in replicas if replica in self._reachable]
            isr = [replica for replica in isr if replica in self._reachable]
            missing = len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)
            if missing and error is ErrorCode.NONE:
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return {
            "error_code": int(error),
            "partition_index": index,
            "leader_id": leader,
            "leader_epoch": int(partition.leader_epoch),
            "replica_nodes": replicas,
            "isr_nodes": isr,
            "offline_replicas": [
                replica
                for position, replica in enumerate(partition.replicas)
                if self._is_offline(replica, position, partition)
            ],
        }

    def _is_offline(self, replica: int, position: int, partition: PartitionImage) -> bool:
        if replica not in self._unfenced:
            return True
        directories = partition.directories
        return bool(directories) and not self._image.brokers[replica].has_online_dir(directories[position])

    def topic(self, topic: TopicImage, *, operations: bool) -> MetadataResponseTopicFields:
        """The fields of one topic with all its partitions."""
        return {
            "error_code": 0,
            "name": topic.name,
            "topic_id": topic.id,
            "is_internal": topic.name in INTERNAL_TOPICS,
            "partitions": [self.partition(index, topic.partitions[index]) for index in sorted(topic.partitions)],
            "topic_authorized_operations": TOPIC_OPERATIONS if operations else NOT_REQUESTED,
        }
