"""OffsetFetch (9), v1 to v10: what groups have committed. Several groups from v8 (KIP-709), topic ids from v10.

An offset that nobody committed is -1 without an error, for a group that does not exist too. A null list of topics asks
for all of a group's offsets. RequireStable has nothing to wait for as long as there are no transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from broker.groups.group import Group
from node.api import RequestContext
from node.repeats import Repeats
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.server import Broker


def handle(node: Broker, ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Raises KafkaError INVALID_REQUEST where all offsets of the same groups are asked for over and over."""
    if ctx.version < 8:
        return _group(node, ctx, request.group_id, request.topics)
    repeats = Repeats()

    def show(asked: Any) -> dict[str, Any]:
        shown = _group(node, ctx, asked.group_id, asked.topics)
        if asked.topics is None:
            repeats.note(asked.group_id, 1 + sum(len(topic["partitions"]) for topic in shown["topics"]))
        return shown

    return {"groups": [show(asked) for asked in request.groups]}


def _group(node: Broker, ctx: RequestContext, group_id: str, topics: Any) -> dict[str, Any]:
    try:
        group = node.groups.shard_for_offsets(group_id).get(group_id)
    except KafkaError as error:
        return {"group_id": group_id, "error_code": error.code, "topics": _failed(ctx, topics, error.code)}
    if topics is None:
        shown = _all(node, ctx, group)
    else:
        shown = [_topic(node, ctx, group, topic) for topic in topics]
    return {"group_id": group_id, "error_code": ErrorCode.NONE, "topics": shown}


def _failed(ctx: RequestContext, topics: Any, error: ErrorCode) -> list[dict[str, Any]]:
    """v1 has no error but those of partitions."""
    if ctx.version >= 2:
        return []
    return [_shown(topic.name, None, [(index, None, error) for index in topic.partition_indexes]) for topic in topics]


def _all(node: Broker, ctx: RequestContext, group: Group | None) -> list[dict[str, Any]]:
    by_topic: dict[str, list[int]] = {}
    for name, index in group.offsets if group is not None else ():
        by_topic.setdefault(name, []).append(index)
    shown = []
    for name, indexes in by_topic.items():
        topic = node.image.topics.get(name)
        if topic is None and ctx.version >= 10:
            continue
        topic_id = topic.id if topic is not None else None
        shown.append(_shown(name, topic_id, _committed(group, name, indexes)))
    return shown


def _topic(node: Broker, ctx: RequestContext, group: Group | None, asked: Any) -> dict[str, Any]:
    indexes = asked.partition_indexes
    if ctx.version < 10:
        return _shown(asked.name, None, _committed(group, asked.name, indexes))
    topic = node.image.topics_by_id.get(asked.topic_id)
    if topic is None:
        return _shown("", asked.topic_id, [(index, None, ErrorCode.UNKNOWN_TOPIC_ID) for index in indexes])
    return _shown(topic.name, topic.id, _committed(group, topic.name, indexes))


def _committed(group: Group | None, name: str, indexes: Iterable[int]) -> list[tuple[int, Any, ErrorCode]]:
    offsets = group.offsets if group is not None else {}
    return [(index, offsets.get((name, index)), ErrorCode.NONE) for index in indexes]


def _shown(name: str, topic_id: Any, partitions: Iterable[tuple[int, Any, ErrorCode]]) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": topic_id,
        "partitions": [
            {
                "partition_index": index,
                "committed_offset": -1 if committed is None else committed.offset,
                "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
                "metadata": "" if committed is None else committed.metadata,
                "error_code": error,
            }
            for index, committed, error in partitions
        ],
    }
