"""OffsetCommit (8), v2 to v10: remember how far a group has read.

v2 to v4 may carry a retention time, v6 a leader epoch (KIP-320), v7 an instance id, v10 names topics by id (KIP-848).
Limit: ``offset.metadata.max.bytes`` for each partition's metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any, Final

from broker.groups.group import Group
from broker.groups.model import CommittedOffset
from broker.groups.offsets import TopicPartition, commit_refusal
from broker.groups.shard import Shard
from node.api import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import get

if TYPE_CHECKING:
    from broker.server import Broker

DEFAULT_RETENTION: Final = -1
_GROUP_NOT_FOUND_SINCE: Final = 9


def handle(node: Broker, ctx: RequestContext, request: Any) -> Mapping[str, Any] | None:
    errors = _topic_errors(node, ctx, request)
    try:
        shard = node.groups.shard_for_offsets(request.group_id)
        group = _committing_group(node, ctx, request, shard)
    except KafkaError as error:
        code = error.code
        return _fields(ctx, request, lambda *_: code, errors)
    accepted, refused = _split(node, ctx, request, errors)

    def committed(error: ErrorCode) -> None:
        ctx.respond_fields(**_fields(ctx, request, lambda topic, index: refused.get((topic, index), error), errors))

    if accepted:
        shard.commit(group, accepted, committed)
    else:
        committed(ErrorCode.NONE)
    return None


def _committing_group(node: Broker, ctx: RequestContext, request: Any, shard: Shard) -> Group:
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


def _key(ctx: RequestContext, topic: Any) -> Any:
    return topic.topic_id if ctx.version >= 10 else topic.name


def _topic_errors(node: Broker, ctx: RequestContext, request: Any) -> dict[Any, ErrorCode]:
    """Topics of the request that do not exist, by the key that the request has for them."""
    by_id = ctx.version >= 10
    known: Container[Any] = node.image.topics_by_id if by_id else node.image.topics
    error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {_key(ctx, topic): error for topic in request.topics if _key(ctx, topic) not in known}


def _split(
    node: Broker, ctx: RequestContext, request: Any, errors: Mapping[Any, ErrorCode]
) -> tuple[dict[TopicPartition, CommittedOffset], dict[tuple[Any, int], ErrorCode]]:
    now_ms = node.runtime.clock.time_ms()
    limit = node.config.get("offset.metadata.max.bytes")
    retention_ms = get(request, "retention_time", DEFAULT_RETENTION)
    expire_ms = now_ms + retention_ms if retention_ms != DEFAULT_RETENTION else -1
    accepted: dict[TopicPartition, CommittedOffset] = {}
    refused: dict[tuple[Any, int], ErrorCode] = {}
    for topic in request.topics:
        key = _key(ctx, topic)
        if key in errors:
            continue
        image = node.image.topics_by_id[key] if ctx.version >= 10 else node.image.topics[key]
        for partition in topic.partitions:
            index = partition.partition_index
            if index not in image.partitions:
                refused[key, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            metadata = partition.committed_metadata or ""
            if len(metadata.encode()) > limit:
                refused[key, index] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            leader_epoch = get(partition, "committed_leader_epoch", -1)
            accepted[image.name, index] = CommittedOffset(
                partition.committed_offset, leader_epoch, metadata, now_ms, expire_ms
            )
    return accepted, refused


def _fields(
    ctx: RequestContext,
    request: Any,
    error_of: Callable[[Any, int], ErrorCode],
    topic_errors: Mapping[Any, ErrorCode],
) -> dict[str, Any]:
    def code(topic: Any, index: int) -> ErrorCode:
        unknown = topic_errors.get(_key(ctx, topic))
        return error_of(_key(ctx, topic), index) if unknown is None else unknown

    return {
        "topics": [
            {
                "name": get(topic, "name", ""),
                "topic_id": get(topic, "topic_id", None),
                "partitions": [
                    {"partition_index": p.partition_index, "error_code": code(topic, p.partition_index)}
                    for p in topic.partitions
                ],
            }
            for topic in request.topics
            if topic.partitions
        ]
    }
