"""DescribeTopicPartitions (key 75), version 0.

Returns topics sorted by name, all of them if none is named. A response has at most ``response_partition_limit`` (and
``max.request.partition.size.limit``) partitions, and a cursor with the first omitted one. KIP-966.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from milena.broker.metadata.metadata_view import INTERNAL_TOPICS, NOT_REQUESTED, TOPIC_OPERATIONS, PartitionView
from milena.node.api import RequestContext
from milena.node.metadata.image import TopicImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.topic_names import topic_name_problem

if TYPE_CHECKING:
    from milena.config.node_config import NodeConfig
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponseFields,
        DescribeTopicPartitionsResponseTopicFields,
        ResponseCursorFields,
    )


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def image(self) -> MetadataImage: ...


def handle(
    node: Needs, ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponseFields:
    topics = node.image.topics
    names, first = _from_cursor(request, topics)
    limit = max(1, min(request.response_partition_limit, node.config.get_int("max.request.partition.size.limit")))
    view = PartitionView(node.image, ctx.listener_name, filter_dead=False, name_listeners=True)
    described, unknown = [], []
    next_cursor: ResponseCursorFields | None = None
    for name in names:
        topic = topics.get(name)
        if limit <= 0:  # also before a topic that does not exist, as in Kafka
            next_cursor = {"topic_name": name, "partition_index": 0}
            break
        if topic is None:
            unknown.append(_missing(name))
        else:
            indexes = [index for index in sorted(topic.partitions) if index >= first]
            described.append(_topic(view, topic, indexes[:limit]))
            if len(indexes) > limit:
                next_cursor = {"topic_name": name, "partition_index": indexes[limit]}
                break
            limit -= len(indexes)
        first = 0
    return {"topics": unknown + described, "next_cursor": next_cursor}


def failed(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest, error: KafkaError
) -> DescribeTopicPartitionsResponseFields:
    topics = [_failed(topic.name, error.code) | {"is_internal": False} for topic in request.topics]
    return {"topics": topics, "next_cursor": None}


def _from_cursor(request: DescribeTopicPartitionsRequest, topics: Iterable[str]) -> tuple[list[str], int]:
    """Return the topics to describe, in order, and the first partition of the first one. Raises KafkaError
    INVALID_REQUEST."""
    cursor = request.cursor
    names = sorted({topic.name for topic in request.topics} or topics)
    if cursor is None:
        return names, 0
    if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    names = [name for name in names if name >= cursor.topic_name]
    return names, cursor.partition_index if names and names[0] == cursor.topic_name else 0


def _topic(view: PartitionView, topic: TopicImage, indexes: list[int]) -> DescribeTopicPartitionsResponseTopicFields:
    partitions = []
    for index in indexes:
        partition = topic.partitions[index]
        partitions.append(
            view.partition(index, partition)
            | {
                "error_code": 0,
                "eligible_leader_replicas": list(partition.elr),
                "last_known_elr": list(partition.last_known_elr),
            }
        )
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": partitions,
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }


def _missing(name: str) -> DescribeTopicPartitionsResponseTopicFields:
    valid = topic_name_problem(name) is None
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    return _failed(name, error) | {"topic_authorized_operations": TOPIC_OPERATIONS}


def _failed(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopicFields:
    return {
        "error_code": int(error),
        "name": name,
        "topic_id": None,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topic_authorized_operations": NOT_REQUESTED,
    }
