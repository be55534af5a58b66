"""OffsetCommit (8), v2 to v10: remember how far a group has read.

v2 to v4 may carry a retention time, v6 a leader epoch (KIP-320), v7 an instance id, v10 names topics by id (KIP-848).
Limit: ``offset.metadata.max.bytes`` for each partition's metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from uuid import UUID

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

_Told: TypeAlias = "tuple[UUID, OffsetCommitResponsePartitionFields]"
"""The answer for a partition of the topic with this id."""
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
    """What a request commits, and its answer: each partition without an error until one is set."""

    def __init__(self) -> None:
        self.topics: list[OffsetCommitResponseTopicFields] = []
        self.topic_ids: dict[UUID, None] = {}
        """Of the topics that exist."""
        self.known: list[_Told] = []
        """The answers for partitions that exist."""
        self.accepted: list[_Told] = []
        """The answers for those in ``offsets``."""
        self.offsets: dict[TopicPartition, CommittedOffset] = {}

    def leave_out_deleted(self, image: MetadataImage, error: ErrorCode) -> None:
        """Topics may be deleted while the request is read: their offsets have been removed from all groups by now."""
        gone = {topic_id for topic_id in self.topic_ids if topic_id not in image.topics_by_id}
        if not gone:
            return
        _set_error([told for told in self.known if told[0] in gone], error)
        self.known = [told for told in self.known if told[0] not in gone]
        self.accepted = [told for told in self.accepted if told[0] not in gone]
        self.offsets = {place: offset for place, offset in self.offsets.items() if offset.topic_id not in gone}

    @property
    def answer(self) -> OffsetCommitResponseFields:
        return {"topics": self.topics}


def handle(
    node: Needs, ctx: RequestContext, request: OffsetCommitRequest
) -> Cooperative[OffsetCommitResponseFields | None]:
    """What does not exist is UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID whatever the group's error is; the group
    is not even looked for if nothing else is asked, as in Kafka's handleOffsetCommitRequest."""
    commit = yield from _read(node, ctx, request)
    commit.leave_out_deleted(node.image, _no_topic(ctx))
    if not commit.known:
        return commit.answer
    try:
        shard = node.groups.shard_for_offsets(request.group_id)
        group = _committing_group(node, ctx, request, shard)
    except KafkaError as error:
        _set_error(commit.known, error.code)
        return commit.answer

    @ctx.answering
    def committed(error: ErrorCode) -> None:
        _set_error(commit.accepted, error)
        ctx.respond_fields(**commit.answer)

    if commit.offsets:
        shard.commit(group, commit.offsets, committed)
    else:
        shard.after_request(group)
        committed(ErrorCode.NONE)
    return None


def _committing_group(node: Needs, ctx: RequestContext, request: OffsetCommitRequest, shard: Shard) -> Group:
    generation = request.generation_id_or_member_epoch
    group = shard.get(request.group_id)
    if group is None:
        if generation >= 0:
            old = ctx.version < _GROUP_NOT_FOUND_SINCE
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION if old else ErrorCode.GROUP_ID_NOT_FOUND)
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


def _image(node: Needs, ctx: RequestContext, topic: OffsetCommitRequestTopic) -> TopicImage | None:
    by_id = ctx.version >= 10
    return node.image.topics_by_id.get(topic.topic_id or ZERO_UUID) if by_id else node.image.topics.get(topic.name)


def _no_topic(ctx: RequestContext) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if ctx.version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _read(node: Needs, ctx: RequestContext, request: OffsetCommitRequest) -> Cooperative[_Commit]:
    """What the request wants to commit, as far as it may be, whatever its group says."""
    now_ms = node.runtime.clock.time_ms()
    limit = node.config.get_int("offset.metadata.max.bytes")
    retention_ms = get(request, "retention_time", DEFAULT_RETENTION)
    expire_ms = now_ms + retention_ms if retention_ms != DEFAULT_RETENTION else -1
    commit, budget = _Commit(), YieldBudget()
    for topic in request.topics:
        image = _image(node, ctx, topic)
        if image is not None:
            commit.topic_ids[image.id] = None

        def read(
            partition: OffsetCommitRequestPartition, image: TopicImage | None = image
        ) -> OffsetCommitResponsePartitionFields:
            index = partition.partition_index
            if image is None or index not in image.partitions:
                error = _no_topic(ctx) if image is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                return {"partition_index": index, "error_code": error}
            told: OffsetCommitResponsePartitionFields = {"partition_index": index, "error_code": ErrorCode.NONE}
            commit.known.append((image.id, told))
            metadata = partition.committed_metadata or ""
            if len(metadata) > limit or _java_length(metadata) > limit:
                told["error_code"] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                return told
            leader_epoch = get(partition, "committed_leader_epoch", -1)
            commit.accepted.append((image.id, told))
            commit.offsets[image.name, index] = CommittedOffset(
                partition.committed_offset, leader_epoch, metadata, now_ms, expire_ms, image.id
            )
            return told

        told = yield from budget.apply(topic.partitions, read)
        if told:
            commit.topics.append(
                {"name": get(topic, "name", ""), "topic_id": get(topic, "topic_id", None), "partitions": told}
            )
    return commit


def _set_error(told: list[_Told], error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        for _, partition in told:
            partition["error_code"] = error


def _java_length(text: str) -> int:
    """What Kafka counts: UTF-16 units, whatever the config's name says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
