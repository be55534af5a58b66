"""OffsetCommit (key 8), versions 2-10: store the offsets of a group.

Versions 2-4 may have a retention time, v6 and later a leader epoch (KIP-320), v7 an instance id; v10 has topic ids
(KIP-848). Each partition's metadata is limited by ``offset.metadata.max.bytes``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from uuid import UUID

from milena.broker.groups import store
from milena.broker.groups.group import Group
from milena.broker.groups.model import CommittedOffset
from milena.broker.groups.offsets import commit_refusal
from milena.broker.groups.shard import Shard
from milena.node.api import RequestContext
from milena.node.metadata.image import TopicImage
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.messages import get
from milena.protocol.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.config.node_config import NodeConfig
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        OffsetCommitResponseFields,
        OffsetCommitResponsePartitionFields,
        OffsetCommitResponseTopicFields,
    )
    from milena.runtime.context import Runtime

_PartitionResult: TypeAlias = "tuple[UUID, OffsetCommitResponsePartitionFields]"
"""A topic id and the result of one of its partitions."""
DEFAULT_RETENTION: Final = -1
_GROUP_NOT_FOUND_SINCE: Final = 9


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def runtime(self) -> Runtime: ...


class _Commit:
    """The offsets of a request, and its response, in which no partition has an error until one is set."""

    def __init__(self) -> None:
        self.topics: list[OffsetCommitResponseTopicFields] = []
        self.topic_ids: dict[UUID, None] = {}
        """The ids of existing topics."""
        self.existing: list[_PartitionResult] = []
        """The results of partitions that exist."""
        self.accepted: list[_PartitionResult] = []
        """The results of partitions in ``offsets``."""
        self.offsets: dict[TopicPartition, CommittedOffset] = {}

    def remove_deleted_topics(self, image: MetadataImage, error: ErrorCode) -> bool:
        """Set ``error`` for topics that were deleted since their partitions were read. Their offsets must not be
        committed: those in the groups have been removed already. Returns whether there are such topics."""
        deleted = {topic_id for topic_id in self.topic_ids if topic_id not in image.topics_by_id}
        if not deleted:
            return False
        for topic_id in deleted:
            del self.topic_ids[topic_id]
        _set_error([result for result in self.existing if result[0] in deleted], error)
        self.existing = [result for result in self.existing if result[0] not in deleted]
        self.accepted = [result for result in self.accepted if result[0] not in deleted]
        self.offsets = {
            partition: offset for partition, offset in self.offsets.items() if offset.topic_id not in deleted
        }
        return True

    @property
    def answer(self) -> OffsetCommitResponseFields:
        return {"topics": self.topics}


def handle(
    node: Needs, ctx: RequestContext, request: OffsetCommitRequest
) -> Cooperative[OffsetCommitResponseFields | None]:
    """Topics and partitions that do not exist have their own error, whatever the error of the group is. If there are no
    others, the group is not looked up, as in Kafka's handleOffsetCommitRequest."""
    commit = yield from _read(node, ctx, request)
    now_ms = node.runtime.clock.time_ms()
    batch = yield from store.offset_batch(request.group_id, commit.offsets, now_ms)
    # The work so far may have yielded, and a topic may have been deleted since its partitions were read.
    while commit.remove_deleted_topics(node.image, _unknown_topic_error(ctx)):
        batch = yield from store.offset_batch(request.group_id, commit.offsets, now_ms)
    if not commit.existing:
        return commit.answer
    try:
        shard = node.groups.shard_for_offsets(request.group_id)
        group = _committing_group(node, ctx, request, shard)
    except KafkaError as error:
        _set_error(commit.existing, error.code)
        return commit.answer

    @ctx.answering
    def committed(error: ErrorCode) -> None:
        _set_error(commit.accepted, error)
        ctx.respond_fields(**commit.answer)

    if commit.offsets:
        shard.commit(group, commit.offsets, committed, batch)
    else:  # all metadata were too long: the look-up may have created the group
        shard.after_request(group)
        committed(ErrorCode.NONE)
    return None


def _committing_group(node: Needs, ctx: RequestContext, request: OffsetCommitRequest, shard: Shard) -> Group:
    generation = request.generation_id_or_member_epoch
    group = shard.get(request.group_id)
    if group is None:
        if generation >= 0:
            before_v9 = ctx.version < _GROUP_NOT_FOUND_SINCE
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION if before_v9 else ErrorCode.GROUP_ID_NOT_FOUND)
        group = shard.get_or_create(request.group_id)
    refusal = commit_refusal(
        group,
        member_id=request.member_id,
        instance_id=get(request, "group_instance_id", None),
        generation=generation,
        now_ms=node.runtime.clock.time_ms(),
    )
    if refusal is not None:
        raise KafkaError(refusal)
    return group


def _topic_image(node: Needs, ctx: RequestContext, topic: OffsetCommitRequestTopic) -> TopicImage | None:
    by_id = ctx.version >= 10
    return node.image.topics_by_id.get(topic.topic_id or ZERO_UUID) if by_id else node.image.topics.get(topic.name)


def _unknown_topic_error(ctx: RequestContext) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if ctx.version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _read(node: Needs, ctx: RequestContext, request: OffsetCommitRequest) -> Cooperative[_Commit]:
    """Read the request: the offsets of existing partitions with valid metadata, and the errors of the others."""
    now_ms = node.runtime.clock.time_ms()
    limit = node.config.get_int("offset.metadata.max.bytes")
    retention_ms = get(request, "retention_time", DEFAULT_RETENTION)
    expire_ms = now_ms + retention_ms if retention_ms != DEFAULT_RETENTION else -1
    commit, budget = _Commit(), YieldBudget()
    for topic in request.topics:
        image = _topic_image(node, ctx, topic)
        if image is not None:
            commit.topic_ids[image.id] = None

        def read(
            partition: OffsetCommitRequestPartition, image: TopicImage | None = image
        ) -> OffsetCommitResponsePartitionFields:
            index = partition.partition_index
            if image is None or index not in image.partitions:
                error = _unknown_topic_error(ctx) if image is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                return {"partition_index": index, "error_code": error}
            result: OffsetCommitResponsePartitionFields = {"partition_index": index, "error_code": ErrorCode.NONE}
            commit.existing.append((image.id, result))
            metadata = partition.committed_metadata or ""
            if len(metadata) > limit or _java_length(metadata) > limit:
                result["error_code"] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                return result
            leader_epoch = get(partition, "committed_leader_epoch", -1)
            commit.accepted.append((image.id, result))
            commit.offsets[image.name, index] = CommittedOffset(
                partition.committed_offset, leader_epoch, metadata, now_ms, expire_ms, image.id
            )
            return result

        result = yield from budget.apply(topic.partitions, read)
        if result:
            commit.topics.append(
                {"name": get(topic, "name", ""), "topic_id": get(topic, "topic_id", None), "partitions": result}
            )
    return commit


def _set_error(result: list[_PartitionResult], error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        for _, partition in result:
            partition["error_code"] = error


def _java_length(text: str) -> int:
    """The length that Kafka compares with ``offset.metadata.max.bytes``: UTF-16 units, not bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
