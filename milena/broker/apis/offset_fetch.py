"""OffsetFetch (9), v1 to v10: what groups have committed. Several groups from v8 (KIP-709), topic ids from v10.

An offset that nobody committed is -1 without an error, for a group that does not exist too. A null list of topics asks
for all of a group's offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias
from uuid import UUID

from milena.broker.groups.journal import TopicPartition
from milena.broker.groups.model import CommittedOffset
from milena.node.api import RequestContext
from milena.node.metadata.image import TopicImage
from milena.node.serving.repeats import Repeats
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.messages import get
from milena.protocol.schemas.steps import Pace, Steps
from milena.protocol.types import ZERO_UUID

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
        OffsetFetchResponseFields,
        OffsetFetchResponseGroupFields,
        OffsetFetchResponseTopicFields,
        OffsetFetchResponseTopicsFields,
    )

Offsets: TypeAlias = Mapping[TopicPartition, CommittedOffset]
Asked: TypeAlias = "OffsetFetchRequestGroup | OffsetFetchRequest"
AskedTopic: TypeAlias = "OffsetFetchRequestTopics | OffsetFetchRequestTopic"
"""In versions 8 and later, and in those before."""


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def image(self) -> MetadataImage: ...


def handle(node: Needs, ctx: RequestContext, request: OffsetFetchRequest) -> Steps[OffsetFetchResponseFields | None]:
    """RequireStable waits until all is committed that was written before; without it what is committed now is told.

    Raises KafkaError INVALID_REQUEST if all offsets of the same groups are asked for over and over.
    """
    asked: Sequence[Asked] = request.groups if ctx.version >= 8 else [request]
    repeats = Repeats()

    def show(group: Asked) -> OffsetFetchResponseGroupFields:
        shown = _group(node, ctx, group.group_id, group.topics)
        if group.topics is None:
            repeats.note(group.group_id, 1 + sum(len(topic["partitions"]) for topic in shown["topics"]))
        return shown

    if not get(request, "require_stable", False):
        return _answer(ctx, (yield from Pace().each(asked, show)))
    answers: dict[int, OffsetFetchResponseGroupFields] = {}

    @ctx.answering
    def settled(place: int, error: ErrorCode) -> None:
        group = asked[place]
        failed = ErrorCode.NOT_COORDINATOR if error is ErrorCode.COORDINATOR_NOT_AVAILABLE else error
        try:
            answers[place] = show(group) if not error else _error(ctx, group, failed)
        except KafkaError as refusal:
            ctx.disconnect(refusal.text)
            return
        if len(answers) == len(asked):
            ctx.respond_fields(**_answer(ctx, [answers[index] for index in range(len(asked))]))

    for place, group in enumerate(asked):
        try:
            node.groups.shard_for_offsets(group.group_id).when_all_committed(partial(settled, place))
        except KafkaError as error:
            settled(place, error.code)
    return None if asked else _answer(ctx, [])


def _answer(ctx: RequestContext, groups: list[OffsetFetchResponseGroupFields]) -> OffsetFetchResponseFields:
    if ctx.version >= 8:
        return {"groups": groups}
    (group,) = groups
    topics: list[OffsetFetchResponseTopicFields] = [
        {"name": topic["name"], "partitions": topic["partitions"]} for topic in group["topics"]
    ]
    return {"error_code": group["error_code"], "topics": topics}


def _error(ctx: RequestContext, asked: Asked, error: ErrorCode) -> OffsetFetchResponseGroupFields:
    return {"group_id": asked.group_id, "error_code": error, "topics": _failed(ctx, asked.topics, error)}


def _group(
    node: Needs, ctx: RequestContext, group_id: str, topics: Sequence[AskedTopic] | None
) -> OffsetFetchResponseGroupFields:
    try:
        offsets = node.groups.shard_for_offsets(group_id).committed_offsets(group_id)
    except KafkaError as error:
        return {"group_id": group_id, "error_code": error.code, "topics": _failed(ctx, topics, error.code)}
    if topics is None:
        shown = _all(node, ctx, offsets)
    else:
        shown = [_topic(node, ctx, offsets, topic) for topic in topics]
    return {"group_id": group_id, "error_code": ErrorCode.NONE, "topics": shown}


def _failed(
    ctx: RequestContext, topics: Sequence[AskedTopic] | None, error: ErrorCode
) -> list[OffsetFetchResponseTopicsFields]:
    """v1 has no error but those of partitions."""
    if ctx.version >= 2:
        return []
    return [
        _shown(topic.name, None, [(index, None, error) for index in topic.partition_indexes]) for topic in topics or ()
    ]


def _all(node: Needs, ctx: RequestContext, offsets: Offsets) -> list[OffsetFetchResponseTopicsFields]:
    by_topic: dict[str, list[int]] = {}
    for name, index in offsets:
        by_topic.setdefault(name, []).append(index)
    shown = []
    for name, indexes in by_topic.items():
        topic = node.image.topics.get(name)
        if topic is None and ctx.version >= 10:
            continue
        of_topic = [entry for entry in _committed(offsets, name, topic, indexes) if entry[1] is not None]
        if of_topic:
            shown.append(_shown(name, topic.id if topic is not None else None, of_topic))
    return shown


def _topic(node: Needs, ctx: RequestContext, offsets: Offsets, asked: AskedTopic) -> OffsetFetchResponseTopicsFields:
    indexes = asked.partition_indexes
    if ctx.version < 10:
        topic = node.image.topics.get(asked.name)
        return _shown(asked.name, None, _committed(offsets, asked.name, topic, indexes))
    topic_id = get(asked, "topic_id", None) or ZERO_UUID
    topic = node.image.topics_by_id.get(topic_id)
    if topic is None:
        return _shown("", topic_id, [(index, None, ErrorCode.UNKNOWN_TOPIC_ID) for index in indexes])
    return _shown(topic.name, topic.id, _committed(offsets, topic.name, topic, indexes))


def _committed(
    offsets: Offsets, name: str, topic: TopicImage | None, indexes: Iterable[int]
) -> list[tuple[int, CommittedOffset | None, ErrorCode]]:
    """Offsets as they are shown: none that was committed for another topic of this name, which was deleted since."""
    found = [(index, offsets.get((name, index))) for index in indexes]
    return [
        (index, committed if committed is not None and _is_of(committed, topic) else None, ErrorCode.NONE)
        for index, committed in found
    ]


def _is_of(committed: CommittedOffset, topic: TopicImage | None) -> bool:
    return topic is None or committed.topic_id in (topic.id, ZERO_UUID)


def _shown(
    name: str, topic_id: UUID | None, partitions: Iterable[tuple[int, CommittedOffset | None, ErrorCode]]
) -> OffsetFetchResponseTopicsFields:
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
