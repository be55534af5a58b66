"""OffsetDelete (key 47), version 0: delete single offsets of a group, except those of topics to which a member is
subscribed. KIP-496."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from milena.broker.groups.model import GroupState
from milena.broker.groups.offsets import offset_delete_refusal
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteResponseFields,
        OffsetDeleteResponseTopicFields,
    )


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def image(self) -> MetadataImage: ...


def handle(node: Needs, ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponseFields | None:
    """Delete offsets. Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID."""
    shard = node.groups.shard(request.group_id)
    group = shard.get(request.group_id)
    refusal = ErrorCode.GROUP_ID_NOT_FOUND if group is None else offset_delete_refusal(group)
    if group is None or refusal is not None:
        shard.when_all_committed(
            ctx.answering(lambda error: ctx.respond_fields(error_code=error or refusal, topics=[]))
        )
        return None
    errors = {}
    for topic in request.topics:
        subscribed = group.state is not GroupState.EMPTY and group.subscribes_to(topic.name)
        for partition in topic.partitions:
            errors[topic.name, partition.partition_index] = _error(node, topic.name, partition, subscribed)
    pending = shard.pending_partitions(request.group_id)
    removable = [
        key for key, error in errors.items() if error is ErrorCode.NONE and (key in group.offsets or key in pending)
    ]

    @ctx.answering
    def written(error: ErrorCode) -> None:
        ctx.respond_fields(error_code=error, topics=_topics(request, errors) if error is ErrorCode.NONE else [])

    shard.remove_offsets(group, removable, written)
    return None


def _error(node: Needs, name: str, partition: OffsetDeleteRequestPartition, subscribed: bool) -> ErrorCode:
    topic = node.image.topics.get(name)
    if topic is None or partition.partition_index not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE


def _topics(
    request: OffsetDeleteRequest, errors: Mapping[tuple[str, int], ErrorCode]
) -> list[OffsetDeleteResponseTopicFields]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": p.partition_index, "error_code": errors[topic.name, p.partition_index]}
                for p in topic.partitions
            ],
        }
        for topic in request.topics
    ]
