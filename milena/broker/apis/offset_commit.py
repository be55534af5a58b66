"""OffsetCommit (8), v2 to v10: remember how far a group has read.

v2 to v4 may carry a retention time, v6 a leader epoch (KIP-320), v7 an instance id, v10 names topics by id (KIP-848).
Limit: ``offset.metadata.max.bytes`` for each partition's metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from uuid import UUID

from milena.broker.groups.group import Group
from milena.broker.groups.journal import TopicPartition
from milena.broker.groups.model import CommittedOffset
from milena.broker.groups.offsets import commit_refusal
from milena.broker.groups.shard import Shard
from milena.node.api import RequestContext
from milena.node.metadata.image import TopicImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.messages import get
from milena.protocol.types import ZERO_UUID

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.config.node_config import NodeConfig
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestTopic,
        OffsetCommitResponseFields,
    )
    from milena.runtime.context import Runtime

Refused: TypeAlias = "dict[tuple[str | UUID | None, int], ErrorCode]"
"""Errors of single partitions, by the request's key of the topic and the index."""

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


def handle(node: Needs, ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponseFields | None:
    """What does not exist is UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID whatever the group's error is; the group
    is not even looked for if nothing else is asked, as in Kafka's handleOffsetCommitRequest."""
    refused = _unknown(node, ctx, request)
    partitions = [
        (_key(ctx, topic), partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if all(key in refused for key in partitions):
        return _fields(ctx, request, refused, ErrorCode.NONE)
    try:
        shard = node.groups.shard_for_offsets(request.group_id)
        group = _committing_group(node, ctx, request, shard)
    except KafkaError as error:
        return _fields(ctx, request, refused, error.code)
    accepted = _accepted(node, ctx, request, refused)

    @ctx.answering
    def committed(error: ErrorCode) -> None:
        ctx.respond_fields(**_fields(ctx, request, refused, error))

    if accepted:
        shard.commit(group, accepted, committed)
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


def _key(ctx: RequestContext, topic: OffsetCommitRequestTopic) -> str | UUID | None:
    return topic.topic_id if ctx.version >= 10 else topic.name


def _image(node: Needs, ctx: RequestContext, topic: OffsetCommitRequestTopic) -> TopicImage | None:
    by_id = ctx.version >= 10
    return node.image.topics_by_id.get(topic.topic_id or ZERO_UUID) if by_id else node.image.topics.get(topic.name)


def _unknown(node: Needs, ctx: RequestContext, request: OffsetCommitRequest) -> Refused:
    """The partitions of the request that do not exist."""
    no_topic = ErrorCode.UNKNOWN_TOPIC_ID if ctx.version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused: Refused = {}
    for topic in request.topics:
        image = _image(node, ctx, topic)
        for partition in topic.partitions:
            if image is None:
                refused[_key(ctx, topic), partition.partition_index] = no_topic
            elif partition.partition_index not in image.partitions:
                refused[_key(ctx, topic), partition.partition_index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _accepted(
    node: Needs, ctx: RequestContext, request: OffsetCommitRequest, refused: Refused
) -> dict[TopicPartition, CommittedOffset]:
    """What is to be committed. Adds to ``refused`` those whose metadata are too large."""
    now_ms = node.runtime.clock.time_ms()
    limit = node.config.get_int("offset.metadata.max.bytes")
    retention_ms = get(request, "retention_time", DEFAULT_RETENTION)
    expire_ms = now_ms + retention_ms if retention_ms != DEFAULT_RETENTION else -1
    accepted: dict[TopicPartition, CommittedOffset] = {}
    for topic in request.topics:
        image = _image(node, ctx, topic)
        for partition in topic.partitions:
            key = _key(ctx, topic), partition.partition_index
            if image is None or key in refused:
                continue
            metadata = partition.committed_metadata or ""
            if len(metadata) > limit or _java_length(metadata) > limit:
                refused[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            leader_epoch = get(partition, "committed_leader_epoch", -1)
            accepted[image.name, partition.partition_index] = CommittedOffset(
                partition.committed_offset, leader_epoch, metadata, now_ms, expire_ms, image.id
            )
    return accepted


def _java_length(text: str) -> int:
    """What Kafka counts: UTF-16 units, whatever the config's name says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _fields(
    ctx: RequestContext, request: OffsetCommitRequest, refused: Refused, error: ErrorCode
) -> OffsetCommitResponseFields:
    return {
        "topics": [
            {
                "name": get(topic, "name", ""),
                "topic_id": get(topic, "topic_id", None),
                "partitions": [
                    {
                        "partition_index": partition.partition_index,
                        "error_code": refused.get((_key(ctx, topic), partition.partition_index), error),
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
            if topic.partitions
        ]
    }
