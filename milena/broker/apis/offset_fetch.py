"""OffsetFetch (9), v1 to v10: what groups have committed. Several groups from v8 (KIP-709), topic ids from v10.

An offset that nobody committed is -1 without an error, for a group that does not exist too. A null list of topics asks
for all of a group's offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from milena.broker.groups.model import CommittedOffset
from milena.node.api import RequestContext
from milena.node.metadata.image import TopicImage
from milena.node.serving.repeats import Repeats
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.messages import get
from milena.protocol.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
        OffsetFetchResponseFields,
        OffsetFetchResponseGroupFields,
        OffsetFetchResponsePartitionsFields,
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


def handle(
    node: Needs, ctx: RequestContext, request: OffsetFetchRequest
) -> Cooperative[OffsetFetchResponseFields | None]:
    """RequireStable waits until all is committed that was written before; without it what is committed now is told.
    Each group is told as it was at one moment.

    Raises KafkaError INVALID_REQUEST if all offsets of the same groups are asked for over and over.
    """
    asked: Sequence[Asked] = request.groups if ctx.version >= 8 else [request]
    look = partial(_look, node, ctx, Repeats())
    if not get(request, "require_stable", False):
        return (yield from _answer(node, ctx, map(look, asked)))
    seen: dict[int, _Seen] = {}
    in_order = (seen[place] for place in range(len(asked)))
    later = False

    def respond() -> Cooperative[None]:
        ctx.respond_fields(**(yield from _answer(node, ctx, in_order)))

    @ctx.answering
    def settled(place: int, error: ErrorCode) -> None:
        if ctx.closed:
            return
        failed = ErrorCode.NOT_COORDINATOR if error is ErrorCode.COORDINATOR_NOT_AVAILABLE else error
        try:
            seen[place] = _Seen(asked[place], failed) if failed else look(asked[place])
        except KafkaError as refusal:
            ctx.disconnect(refusal.text)
            return
        if later and len(seen) == len(asked):
            ctx.resume(respond())

    def wait(place: int) -> None:
        try:
            node.groups.shard_for_offsets(asked[place].group_id).when_all_committed(partial(settled, place))
        except KafkaError as error:
            settled(place, error.code)

    yield from YieldBudget().apply(range(len(asked)), wait)
    later = True
    return (yield from _answer(node, ctx, in_order)) if len(seen) == len(asked) else None


class _Seen(NamedTuple):
    """What is to be told of a group: as it was at one moment, whatever is committed while the answer is made."""

    asked: Asked
    error: ErrorCode
    committed: Iterable[CommittedOffset | None] = ()
    """Of all partitions that are asked for, in order."""
    everything: list[OffsetFetchResponseTopicsFields] | None = None
    """If all offsets are asked for."""


def _look(node: Needs, ctx: RequestContext, repeats: Repeats, asked: Asked) -> _Seen:
    try:
        offsets = node.groups.shard_for_offsets(asked.group_id).committed_offsets(asked.group_id)
    except KafkaError as error:
        return _Seen(asked, error.code, repeat(None))
    if asked.topics is None:
        everything = _all(node, ctx, offsets)
        repeats.note(asked.group_id, 1 + sum(len(topic["partitions"]) for topic in everything))
        return _Seen(asked, ErrorCode.NONE, everything=everything)
    find = offsets.get
    named = [(_name(node, ctx, topic), topic.partition_indexes) for topic in asked.topics]
    return _Seen(asked, ErrorCode.NONE, [find((name, index)) for name, indexes in named for index in indexes])


def _name(node: Needs, ctx: RequestContext, asked: AskedTopic) -> str:
    """Empty for a topic id that is not known."""
    if ctx.version < 10:
        return asked.name
    topic = _by_id(node, asked)
    return "" if topic is None else topic.name


def _by_id(node: Needs, asked: AskedTopic) -> TopicImage | None:
    return node.image.topics_by_id.get(get(asked, "topic_id", None) or ZERO_UUID)


def _answer(node: Needs, ctx: RequestContext, seen: Iterable[_Seen]) -> Cooperative[OffsetFetchResponseFields]:
    groups: list[OffsetFetchResponseGroupFields] = []
    budget = YieldBudget()
    for group in seen:
        topics = group.everything
        if topics is None:
            topics = yield from _topics(node, ctx, group, budget)
        groups.append({"group_id": group.asked.group_id, "error_code": group.error, "topics": topics})
        if budget.spend(1):
            yield
    if ctx.version >= 8:
        return {"groups": groups}
    (only,) = groups
    old: list[OffsetFetchResponseTopicFields] = [
        {"name": topic["name"], "partitions": topic["partitions"]} for topic in only["topics"]
    ]
    return {"error_code": only["error_code"], "topics": old}


def _topics(
    node: Needs, ctx: RequestContext, group: _Seen, budget: YieldBudget
) -> Cooperative[list[OffsetFetchResponseTopicsFields]]:
    topics: list[OffsetFetchResponseTopicsFields] = []
    if group.error and ctx.version >= 2:  # v1 has no error but those of partitions
        return topics
    committed = iter(group.committed)
    for asked in group.asked.topics or ():
        told = _topic(node, ctx, asked, group.error)
        entries = zip(asked.partition_indexes, committed, strict=False)
        partitions = yield from budget.apply(entries, told.shown)
        topics.append({"name": told.name, "topic_id": told.topic_id, "partitions": partitions})
        if budget.spend(1):
            yield
    return topics


def _topic(node: Needs, ctx: RequestContext, asked: AskedTopic, error: ErrorCode) -> _Topic:
    if ctx.version < 10:
        return _Topic(asked.name, None, node.image.topics.get(asked.name), error)
    topic_id = get(asked, "topic_id", None) or ZERO_UUID
    topic = _by_id(node, asked)
    return (
        _Topic("", topic_id, None, ErrorCode.UNKNOWN_TOPIC_ID)
        if topic is None
        else _Topic(topic.name, topic_id, topic, error)
    )


def _all(node: Needs, ctx: RequestContext, offsets: Offsets) -> list[OffsetFetchResponseTopicsFields]:
    by_topic: dict[str, list[tuple[int, CommittedOffset]]] = {}
    for (name, index), committed in offsets.items():
        by_topic.setdefault(name, []).append((index, committed))
    shown: list[OffsetFetchResponseTopicsFields] = []
    for name, entries in by_topic.items():
        image = node.image.topics.get(name)
        if image is None and ctx.version >= 10:
            continue
        topic = _Topic(name, None if image is None else image.id, image, ErrorCode.NONE)
        partitions = [topic.shown(entry) for entry in entries if topic.has(entry[1])]
        if partitions:
            shown.append({"name": name, "topic_id": topic.topic_id, "partitions": partitions})
    return shown


class _Topic(NamedTuple):
    """A topic as it is told."""

    name: str
    topic_id: UUID | None
    image: TopicImage | None
    error: ErrorCode

    def has(self, committed: CommittedOffset) -> bool:
        """Whether that was not committed for another topic of this name, which was deleted since."""
        return self.image is None or committed.topic_id in (self.image.id, ZERO_UUID)

    def shown(self, entry: tuple[int, CommittedOffset | None]) -> OffsetFetchResponsePartitionsFields:
        index, committed = entry
        if committed is not None and not self.has(committed):
            committed = None
        return {
            "partition_index": index,
            "committed_offset": -1 if committed is None else committed.offset,
            "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
            "metadata": "" if committed is None else committed.metadata,
            "error_code": self.error,
        }
