"""The offsets in a request of OffsetCommit or TxnOffsetCommit, and the results of their partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, Unpack
from uuid import UUID

from milena.broker.groups import store
from milena.broker.groups.model import CommittedOffset
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import BatchHeader
from milena.protocol.requests.messages import get
from milena.protocol.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.broker.groups.group import Group
    from milena.broker.groups.shard import Shard
    from milena.config.node_config import NodeConfig
    from milena.node.metadata.image import MetadataImage, TopicImage
    from milena.protocol.apis import (
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        OffsetCommitResponsePartitionFields,
        OffsetCommitResponseTopicFields,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )
    from milena.runtime.context import Runtime

_PartitionResult: TypeAlias = "tuple[UUID, OffsetCommitResponsePartitionFields]"
"""A topic id and the result of one of its partitions. TxnOffsetCommit has the same fields."""


class CommitNeeds(Protocol):
    """What the handlers use of their broker."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def runtime(self) -> Runtime: ...


class RequestedOffsets:
    """The offsets of a request, and the topics of its response, in which no partition has an error until one is
    set."""

    def __init__(self, *, by_id: bool, max_metadata: int, now_ms: int, expire_ms: int = -1) -> None:
        """``by_id``: the request has topic ids, not names. ``max_metadata``: ``offset.metadata.max.bytes``.
        ``expire_ms``: when the offsets expire, if the client has set a time."""
        self.topics: list[OffsetCommitResponseTopicFields] = []
        self.topic_ids: dict[UUID, None] = {}
        """The ids of existing topics."""
        self.existing: list[_PartitionResult] = []
        """The results of partitions that exist."""
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        self._by_id = by_id
        self._max_metadata = max_metadata
        self._now_ms = now_ms
        self._expire_ms = expire_ms

    @property
    def _unknown_topic(self) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_ID if self._by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def read(
        self,
        image: MetadataImage,
        topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic],
    ) -> Cooperative[None]:
        """Read the offsets of existing partitions with valid metadata, and set the errors of the others."""
        now_ms, expire_ms, limit, budget = self._now_ms, self._expire_ms, self._max_metadata, YieldBudget()
        for topic in topics:
            found = image.topics_by_id.get(topic.topic_id or ZERO_UUID) if self._by_id else image.topics.get(topic.name)
            if found is not None:
                self.topic_ids[found.id] = None

            def read(
                partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
                topic: TopicImage | None = found,
            ) -> OffsetCommitResponsePartitionFields:
                index = partition.partition_index
                if topic is None or index not in topic.partitions:
                    error = self._unknown_topic if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    return {"partition_index": index, "error_code": error}
                result: OffsetCommitResponsePartitionFields = {"partition_index": index, "error_code": ErrorCode.NONE}
                self.existing.append((topic.id, result))
                metadata = partition.committed_metadata or ""
                if len(metadata) > limit or _java_length(metadata) > limit:
                    result["error_code"] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                    return result
                leader_epoch = get(partition, "committed_leader_epoch", -1)
                self.offsets[topic.name, index] = CommittedOffset(
                    partition.committed_offset, leader_epoch, metadata, now_ms, expire_ms, topic.id
                )
                return result

            result = yield from budget.apply(topic.partitions, read)
            if result:
                self.topics.append(
                    {"name": get(topic, "name", ""), "topic_id": get(topic, "topic_id", None), "partitions": result}
                )

    def batch(
        self, image: Callable[[], MetadataImage], group_id: str, now_ms: int, **header: Unpack[BatchHeader]
    ) -> Cooperative[bytes]:
        """The batch of the offsets (``store.offset_batch``), without those of topics that were deleted since their
        partitions were read: this work and that before it may have yielded."""
        while True:
            batch = yield from store.offset_batch(group_id, self.offsets, now_ms, **header)
            if not self.remove_deleted_topics(image()):
                return batch

    def remove_deleted_topics(self, image: MetadataImage) -> bool:
        """Set the error of topics that were deleted since their partitions were read. Their offsets must not be
        committed: those in the groups have been removed already. Returns whether there are such topics."""
        deleted = {topic_id for topic_id in self.topic_ids if topic_id not in image.topics_by_id}
        if not deleted:
            return False
        for topic_id in deleted:
            del self.topic_ids[topic_id]
        _set_error([result for result in self.existing if result[0] in deleted], self._unknown_topic)
        self.existing = [result for result in self.existing if result[0] not in deleted]
        self.offsets = {
            partition: offset for partition, offset in self.offsets.items() if offset.topic_id not in deleted
        }
        return True

    def refuse(self, error: ErrorCode) -> None:
        """Set the error of all partitions that exist, also of those with an error of their own, as in Kafka."""
        _set_error(self.existing, error)


def group_of_commit(shard: Shard, group_id: str, generation: int, *, knows_not_found: bool) -> Group:
    """The group that offsets are committed for. An unknown one is created for a client without a generation.
    ``knows_not_found``: the version of the request knows GROUP_ID_NOT_FOUND. Raises KafkaError."""
    group = shard.get(group_id)
    if group is None and generation >= 0:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if knows_not_found else ErrorCode.ILLEGAL_GENERATION)
    return group or shard.get_or_create(group_id)


def _set_error(result: list[_PartitionResult], error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        for _, partition in result:
            partition["error_code"] = error


def _java_length(text: str) -> int:
    """The length that Kafka compares with ``offset.metadata.max.bytes``: UTF-16 units, not bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
