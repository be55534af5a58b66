"""Metadata (key 3), versions 0-13.

Returns unfenced brokers with their endpoints on the listener of the request, and topics by name or, from v12 on, by id.
Unknown topics are created if client and broker allow it, and have UNKNOWN_TOPIC_OR_PARTITION until they exist, as in
Kafka. ``controller_id`` is a random unfenced broker, because clients cannot connect to a KRaft controller.

Encoded responses are cached until topics or brokers change, because building one for 1,000 partitions blocks the loop
for milliseconds. KIPs: 4, 430, 516, 700 (no cluster operations from v11 on).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from milena.broker.metadata.metadata_view import (
    CLUSTER_OPERATIONS,
    INTERNAL_TOPICS,
    NOT_REQUESTED,
    TOPIC_OPERATIONS,
    PartitionView,
    unfenced_brokers,
)
from milena.node.api import RequestContext
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.protocol.topic_names import topic_name_problem
from milena.protocol.types import ZERO_UUID

if TYPE_CHECKING:
    from milena.broker.controller_link.auto_create import AutoCreation
    from milena.broker.metadata.answer_cache import AnswerCache
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import (
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponseFields,
        MetadataResponseTopicFields,
    )
    from milena.runtime.context import Runtime

RAW: Final = True
MAX_CACHED_BODY: Final = 16 << 10
"""The maximum bytes of a request whose response is cached. A larger one names thousands of topics, and is decoded
cooperatively."""


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def auto_create(self) -> AutoCreation: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def metadata_answers(self) -> AnswerCache: ...
    @property
    def runtime(self) -> Runtime: ...


def handle(node: Needs, ctx: RequestContext, body: memoryview) -> Cooperative[None] | None:
    request = bytes(body)
    cached = node.metadata_answers.get((ctx.version, ctx.listener_name, request))
    if cached is None:
        return _respond(node, ctx, request)
    ctx.respond([cached])
    return None


def _respond(node: Needs, ctx: RequestContext, body: bytes) -> Cooperative[None]:
    """Compute the response, cache it, and send it."""
    if len(body) > MAX_CACHED_BODY:
        yield
        request = yield from messages.decode_large_request(ApiKey.METADATA, ctx.version, body)
    else:
        request = messages.decode_request(ApiKey.METADATA, ctx.version, body)
    clears = node.metadata_answers.clears
    fields, cacheable = yield from _answer(node, ctx, node.image, request)
    yield from ctx.note_errors(fields)
    encoded = yield from messages.encode_large_response(ApiKey.METADATA, ctx.version, **fields)
    # Each change of the metadata clears the cache. One may have happened at a yield: the image changes in place.
    if cacheable and node.metadata_answers.clears == clears and len(body) <= MAX_CACHED_BODY:
        node.metadata_answers.put((ctx.version, ctx.listener_name, body), encoded, len(body))
    if not ctx.closed:
        ctx.respond([encoded])


def _answer(
    node: Needs, ctx: RequestContext, image: MetadataImage, request: MetadataRequest
) -> Cooperative[tuple[MetadataResponseFields, bool]]:
    """Return the response's fields, and whether they are valid until the metadata changes."""
    requested = request.topics
    all_requested = ctx.version == 0 and not requested
    view = PartitionView(image, ctx.listener_name, filter_dead=ctx.version == 0, name_listeners=ctx.version >= 6)
    operations = bool(messages.get(request, "include_topic_authorized_operations", False))
    cacheable = True
    if requested is None or all_requested:
        topics = yield from _all_topics(view, image, operations=operations)
    else:
        named = yield from _read_topics(requested, ctx.version)
        if named.malformed:
            return (yield from _malformed_response(requested)), True
        topics, creatable = yield from _named_topics(image, view, named, operations=operations)
        create = bool(messages.get(request, "allow_auto_topic_creation", True))
        cacheable = not (create and node.auto_create.create(creatable))
    brokers = unfenced_brokers(image, ctx.listener_name)
    cluster_operations = messages.get(request, "include_cluster_authorized_operations", False)
    return {
        "brokers": [
            {"node_id": broker.id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            for broker, endpoint in brokers
        ],
        "cluster_id": node.cluster_id,
        "controller_id": node.runtime.random.choice(brokers)[0].id if brokers else -1,
        "topics": topics,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if cluster_operations else NOT_REQUESTED,
    }, cacheable


class _RequestedTopics:
    """The topics of a request, each once."""

    __slots__ = ("ids", "malformed", "names")

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.ids: dict[UUID, None] = {}
        self.malformed = False
        """Whether a topic has no name, or has an id below v12: versions 10 and 11 have the field, but must not use
        it."""


def _read_topics(requested: Iterable[MetadataRequestTopic], version: int) -> Cooperative[_RequestedTopics]:
    named = _RequestedTopics()

    def read(topic: MetadataRequestTopic) -> None:
        topic_id: UUID | None = getattr(topic, "topic_id", None)
        if topic_id is None or topic_id == ZERO_UUID:
            named.malformed |= topic.name is None
            named.names[str(topic.name)] = None
        else:
            named.malformed |= version < 12
            named.ids[topic_id] = None

    yield from YieldBudget().apply(requested, read)
    return named


def _all_topics(
    view: PartitionView, image: MetadataImage, *, operations: bool
) -> Cooperative[list[MetadataResponseTopicFields]]:
    """The fields of all topics, sorted by name."""
    budget = YieldBudget()
    topics: list[MetadataResponseTopicFields] = []
    for name in sorted(image.topics):
        topic = image.topics.get(name)
        if topic is None:
            continue  # deleted since the last yield
        topics.append(view.topic(topic, operations=operations))
        if budget.spend(1 + len(topic.partitions)):
            yield
    return topics


def _malformed_response(requested: Iterable[MetadataRequestTopic]) -> Cooperative[MetadataResponseFields]:
    """The response to a malformed request, which has an error for each topic, and no brokers."""
    error = ErrorCode.INVALID_REQUEST
    topics = yield from YieldBudget().apply(
        requested, lambda named: _failed(named.name or "", getattr(named, "topic_id", None), error)
    )
    return {"controller_id": -1, "topics": topics, "error_code": int(error)}


def _named_topics(
    image: MetadataImage, view: PartitionView, named: _RequestedTopics, *, operations: bool
) -> Cooperative[tuple[list[MetadataResponseTopicFields], list[str]]]:
    """Return the fields of the requested topics, existing ones first, and the names of unknown topics that could be
    created. As in Kafka, names are ignored in a request with topic ids."""
    described: list[MetadataResponseTopicFields] = []
    unknown: list[MetadataResponseTopicFields] = []
    creatable: list[str] = []

    def by_name(name: str) -> int:
        topic = image.topics.get(name)
        if topic is not None:
            described.append(view.topic(topic, operations=operations))
            return len(topic.partitions)
        if topic_name_problem(name) is None:
            creatable.append(name)
            unknown.append(_failed(name, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, operations=operations))
        else:
            unknown.append(_failed(name, None, ErrorCode.INVALID_TOPIC_EXCEPTION, operations=operations))
        return 0

    def by_id(topic_id: UUID) -> int:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            unknown.append(_failed(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
            return 0
        described.append(view.topic(topic, operations=operations))
        return len(topic.partitions)

    budget = YieldBudget()
    for topic_id in named.ids:
        if budget.spend(1 + by_id(topic_id)):
            yield
    # As in Kafka: a request with ids has no names that count.
    for name in named.names if not named.ids else ():
        if budget.spend(1 + by_name(name)):
            yield
    return described + unknown, creatable


def _failed(
    name: str | None, topic_id: UUID | None, error: ErrorCode, *, operations: bool = False
) -> MetadataResponseTopicFields:
    return {
        "error_code": int(error),
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topic_authorized_operations": TOPIC_OPERATIONS if operations else NOT_REQUESTED,
    }
