"""OffsetFetch (key 9), versions 1-10: the committed offsets of groups. Several groups from v8 on (KIP-709), topic ids
from v10 on.

A partition without a committed offset, also in a group that does not exist, has offset -1 and no error. A null list of
topics requests all offsets of a group. With RequireStable (v7, KIP-447) a partition for which a transaction with an
offset is open has UNSTABLE_OFFSET_COMMIT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias
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

UNSTABLE: Final = CommittedOffset(-1, -1, "", 0)
"""The result for a partition with an open transaction: clients ask again."""
Offsets: TypeAlias = Mapping[TopicPartition, CommittedOffset]
GroupRequest: TypeAlias = "OffsetFetchRequestGroup | OffsetFetchRequest"
TopicRequest: TypeAlias = "OffsetFetchRequestTopics | OffsetFetchRequestTopic"
"""In versions 8 and later, and in earlier ones."""


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def image(self) -> MetadataImage: ...


def handle(
    node: Needs, ctx: RequestContext, request: OffsetFetchRequest
) -> Cooperative[OffsetFetchResponseFields | None]:
    """With RequireStable, each group is read when everything that was appended before is committed; without it, the
    committed offsets are read at once. Each group is read at one moment, although the response is built cooperatively.

    Raises KafkaError INVALID_REQUEST if repeated groups make the response too large (``Repeats``).
    """
    requested: Sequence[GroupRequest] = request.groups if ctx.version >= 8 else [request]
    require_stable = get(request, "require_stable", False)
    read_group = partial(_read_group, node, ctx, Repeats(), require_stable)
    if not require_stable:
        return (yield from _answer(node, ctx, map(read_group, requested)))
    results: dict[int, _GroupOffsets] = {}
    in_order = (results[position] for position in range(len(requested)))
    waited = False

    def respond() -> Cooperative[None]:
        ctx.respond_fields(**(yield from _answer(node, ctx, in_order)))

    @ctx.answering
    def on_committed(position: int, error: ErrorCode) -> None:
        if ctx.closed:
            return
        # A client of OffsetFetch retries after NOT_COORDINATOR: it looks up the coordinator again.
        failed = ErrorCode.NOT_COORDINATOR if error is ErrorCode.COORDINATOR_NOT_AVAILABLE else error
        try:
            results[position] = (
                _GroupOffsets(requested[position], failed) if failed else read_group(requested[position])
            )
        except KafkaError as refusal:
            ctx.disconnect(refusal.text)
            return
        # Before ``waited``, the handler itself returns the response if all groups were read at once.
        if waited and len(results) == len(requested):
            ctx.resume(respond())

    def wait_until_committed(position: int) -> None:
        try:
            node.groups.shard_for_offsets(requested[position].group_id).when_all_committed(
                partial(on_committed, position)
            )
        except KafkaError as error:
            on_committed(position, error.code)

    yield from YieldBudget().apply(range(len(requested)), wait_until_committed)
    waited = True
    return (yield from _answer(node, ctx, in_order)) if len(results) == len(requested) else None


class _GroupOffsets(NamedTuple):
    """The offsets of one group for the response, read at one moment."""

    requested: GroupRequest
    error: ErrorCode
    committed: Iterable[CommittedOffset | None] = ()
    """The offsets of the requested partitions, in order."""
    all_topics: list[OffsetFetchResponseTopicsFields] | None = None
    """The result if all offsets are requested."""


def _read_group(
    node: Needs, ctx: RequestContext, repeats: Repeats, require_stable: bool, requested: GroupRequest
) -> _GroupOffsets:
    try:
        shard = node.groups.shard_for_offsets(requested.group_id)
    except KafkaError as error:
        return _GroupOffsets(requested, error.code, repeat(None))
    offsets = shard.committed_offsets(requested.group_id)
    if require_stable and (unstable := shard.unstable(requested.group_id)) is not None:
        offsets = _Stable(offsets, unstable)
    if requested.topics is None:
        all_topics = _all_topics(node, ctx, offsets)
        repeats.note(requested.group_id, 1 + sum(len(topic["partitions"]) for topic in all_topics))
        return _GroupOffsets(requested, ErrorCode.NONE, all_topics=all_topics)
    get_offset = offsets.get
    topics = [(_topic_name(node, ctx, topic), topic.partition_indexes) for topic in requested.topics]
    return _GroupOffsets(
        requested, ErrorCode.NONE, [get_offset((name, index)) for name, indexes in topics for index in indexes]
    )


class _Stable(Mapping[TopicPartition, CommittedOffset]):
    """Committed offsets, with ``UNSTABLE`` for partitions that have an open transaction. Those of them without a
    committed offset are not among the keys, as in Kafka."""

    __slots__ = ("_offsets", "_unstable")

    def __init__(self, offsets: Offsets, unstable: Callable[[TopicPartition], bool]) -> None:
        self._offsets = offsets
        self._unstable = unstable

    def __getitem__(self, partition: TopicPartition) -> CommittedOffset:
        return UNSTABLE if self._unstable(partition) else self._offsets[partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)


def _topic_name(node: Needs, ctx: RequestContext, requested: TopicRequest) -> str:
    """The name of a requested topic; empty for an unknown topic id."""
    if ctx.version < 10:
        return requested.name
    topic = _by_id(node, requested)
    return "" if topic is None else topic.name


def _by_id(node: Needs, requested: TopicRequest) -> TopicImage | None:
    return node.image.topics_by_id.get(get(requested, "topic_id", None) or ZERO_UUID)


def _answer(
    node: Needs, ctx: RequestContext, results: Iterable[_GroupOffsets]
) -> Cooperative[OffsetFetchResponseFields]:
    groups: list[OffsetFetchResponseGroupFields] = []
    budget = YieldBudget()
    for group in results:
        topics = group.all_topics
        if topics is None:
            topics = yield from _topics(node, ctx, group, budget)
        groups.append({"group_id": group.requested.group_id, "error_code": group.error, "topics": topics})
        if budget.spend(1):
            yield
    if ctx.version >= 8:
        return {"groups": groups}
    (only_group,) = groups
    old: list[OffsetFetchResponseTopicFields] = [
        {"name": topic["name"], "partitions": topic["partitions"]} for topic in only_group["topics"]
    ]
    return {"error_code": only_group["error_code"], "topics": old}


def _topics(
    node: Needs, ctx: RequestContext, group: _GroupOffsets, budget: YieldBudget
) -> Cooperative[list[OffsetFetchResponseTopicsFields]]:
    topics: list[OffsetFetchResponseTopicsFields] = []
    if group.error and ctx.version >= 2:  # v1 has only errors of partitions
        return topics
    committed = iter(group.committed)
    for requested in group.requested.topics or ():
        topic_result = _topic(node, ctx, requested, group.error)
        entries = zip(requested.partition_indexes, committed, strict=False)
        partitions = yield from budget.apply(entries, topic_result.result)
        topics.append({"name": topic_result.name, "topic_id": topic_result.topic_id, "partitions": partitions})
        if budget.spend(1):
            yield
    return topics


def _topic(node: Needs, ctx: RequestContext, requested: TopicRequest, error: ErrorCode) -> _TopicResult:
    if ctx.version < 10:
        return _TopicResult(requested.name, None, node.image.topics.get(requested.name), error)
    topic_id = get(requested, "topic_id", None) or ZERO_UUID
    topic = _by_id(node, requested)
    return (
        _TopicResult("", topic_id, None, ErrorCode.UNKNOWN_TOPIC_ID)
        if topic is None
        else _TopicResult(topic.name, topic_id, topic, error)
    )


def _all_topics(node: Needs, ctx: RequestContext, offsets: Offsets) -> list[OffsetFetchResponseTopicsFields]:
    by_topic: dict[str, list[tuple[int, CommittedOffset]]] = {}
    for (name, index), committed in offsets.items():
        by_topic.setdefault(name, []).append((index, committed))
    result: list[OffsetFetchResponseTopicsFields] = []
    for name, entries in by_topic.items():
        image = node.image.topics.get(name)
        if image is None and ctx.version >= 10:
            continue
        topic = _TopicResult(name, None if image is None else image.id, image, ErrorCode.NONE)
        partitions = [topic.result(entry) for entry in entries if topic.is_of_this_topic(entry[1])]
        if partitions:
            result.append({"name": name, "topic_id": topic.topic_id, "partitions": partitions})
    return result


class _TopicResult(NamedTuple):
    """A topic of the response."""

    name: str
    topic_id: UUID | None
    image: TopicImage | None
    error: ErrorCode

    def is_of_this_topic(self, committed: CommittedOffset) -> bool:
        """Whether the offset was not committed for an earlier topic of the same name, which was deleted."""
        return self.image is None or committed.topic_id in (self.image.id, ZERO_UUID)

    def result(self, entry: tuple[int, CommittedOffset | None]) -> OffsetFetchResponsePartitionsFields:
        """The fields of one partition, given (index, offset or None)."""
        index, committed = entry
        if committed is not None and not self.is_of_this_topic(committed):
            committed = None
        return {
            "partition_index": index,
            "committed_offset": -1 if committed is None else committed.offset,
            "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
            "metadata": "" if committed is None else committed.metadata,
            "error_code": self.error or (ErrorCode.UNSTABLE_OFFSET_COMMIT if committed is UNSTABLE else ErrorCode.NONE),
        }
