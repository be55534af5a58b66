"""Metadata (key 3), versions 0-13.

Brokers that are not fenced, with the endpoint of the listener on which the request came in; topics by name or, from
v12 on, by id. Missing topics are created if both sides allow it, and answered UNKNOWN_TOPIC_OR_PARTITION until
they are there, as Kafka does. ``controller_id`` is some alive broker, since clients cannot reach a KRaft controller.

Answers are kept as bytes until topics or brokers change, since building one for 1,000 partitions holds the loop for
milliseconds. KIPs: 4, 430, 516, 700 (cluster operations left v11).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from milena.broker.metadata.metadata_view import (
    CLUSTER_OPERATIONS,
    INTERNAL_TOPICS,
    NOT_ASKED,
    TOPIC_OPERATIONS,
    PartitionView,
    alive_brokers,
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
"""Bytes of a request whose response is cached. A larger one names thousands of topics, and is decoded cooperatively."""


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
    image = node.image
    fields, final = yield from _answer(node, ctx, image, request)
    encoded = yield from messages.encode_large_response(ApiKey.METADATA, ctx.version, **fields)
    # The cache is emptied by each change of the metadata, one of which may have come between two steps.
    if final and node.image is image and len(body) <= MAX_CACHED_BODY:
        node.metadata_answers.put((ctx.version, ctx.listener_name, body), encoded, len(body))
    if not ctx.closed:
        ctx.respond([encoded])


def _answer(
    node: Needs, ctx: RequestContext, image: MetadataImage, request: MetadataRequest
) -> Cooperative[tuple[MetadataResponseFields, bool]]:
    """The response's fields, and whether they stay right until the metadata changes."""
    wanted = request.topics
    everything = ctx.version == 0 and not wanted
    view = PartitionView(image, ctx.listener_name, filter_dead=ctx.version == 0, name_listeners=ctx.version >= 6)
    operations = bool(messages.get(request, "include_topic_authorized_operations", False))
    final = True
    if wanted is None or everything:
        topics = yield from _every(view, image, operations=operations)
    else:
        asked = yield from _read(wanted, ctx.version)
        if asked.malformed:
            return (yield from _refused(wanted)), True
        topics, missing = yield from _named(image, view, asked, operations=operations)
        create = bool(messages.get(request, "allow_auto_topic_creation", True))
        final = not (create and node.auto_create.create(missing))
    brokers = alive_brokers(image, ctx.listener_name)
    cluster_operations = messages.get(request, "include_cluster_authorized_operations", False)
    return {
        "brokers": [
            {"node_id": broker.id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            for broker, endpoint in brokers
        ],
        "cluster_id": node.cluster_id,
        "controller_id": node.runtime.random.choice(brokers)[0].id if brokers else -1,
        "topics": topics,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if cluster_operations else NOT_ASKED,
    }, final


class _Asked:
    """Topics asked for, each once."""

    __slots__ = ("ids", "malformed", "names")

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.ids: dict[UUID, None] = {}
        self.malformed = False
        """Versions 10 and 11 have topic ids, but only v12 and later may ask by them."""


def _read(wanted: Iterable[MetadataRequestTopic], version: int) -> Cooperative[_Asked]:
    asked = _Asked()

    def read(topic: MetadataRequestTopic) -> None:
        topic_id: UUID | None = getattr(topic, "topic_id", None)
        if topic_id is None or topic_id == ZERO_UUID:
            asked.malformed |= topic.name is None
            asked.names[str(topic.name)] = None
        else:
            asked.malformed |= version < 12
            asked.ids[topic_id] = None

    yield from YieldBudget().apply(wanted, read)
    return asked


def _every(
    view: PartitionView, image: MetadataImage, *, operations: bool
) -> Cooperative[list[MetadataResponseTopicFields]]:
    """All topics, in the order of their names."""
    budget = YieldBudget()
    topics: list[MetadataResponseTopicFields] = []
    for name in sorted(image.topics):
        topic = image.topics[name]
        topics.append(view.topic(topic, operations=operations))
        if budget.spend(1 + len(topic.partitions)):
            yield
    return topics


def _refused(wanted: Iterable[MetadataRequestTopic]) -> Cooperative[MetadataResponseFields]:
    """A malformed request is answered with the topics alone."""
    error = ErrorCode.INVALID_REQUEST
    topics = yield from YieldBudget().apply(
        wanted, lambda asked: _failed(asked.name or "", getattr(asked, "topic_id", None), error)
    )
    return {"controller_id": -1, "topics": topics, "error_code": int(error)}


def _named(
    image: MetadataImage, view: PartitionView, asked: _Asked, *, operations: bool
) -> Cooperative[tuple[list[MetadataResponseTopicFields], list[str]]]:
    """The topics asked for, and the names of those that do not exist and could. Kafka passes over the names in a
    request that has an id."""
    found: list[MetadataResponseTopicFields] = []
    lost: list[MetadataResponseTopicFields] = []
    missing: list[str] = []

    def by_name(name: str) -> int:
        topic = image.topics.get(name)
        if topic is not None:
            found.append(view.topic(topic, operations=operations))
            return len(topic.partitions)
        if topic_name_problem(name) is None:
            missing.append(name)
            lost.append(_failed(name, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, operations=operations))
        else:
            lost.append(_failed(name, None, ErrorCode.INVALID_TOPIC_EXCEPTION, operations=operations))
        return 0

    def by_id(topic_id: UUID) -> int:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            lost.append(_failed(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
            return 0
        found.append(view.topic(topic, operations=operations))
        return len(topic.partitions)

    budget = YieldBudget()
    for topic_id in asked.ids:
        if budget.spend(1 + by_id(topic_id)):
            yield
    for name in asked.names if not asked.ids else ():
        if budget.spend(1 + by_name(name)):
            yield
    return found + lost, missing


def _failed(
    name: str | None, topic_id: UUID | None, error: ErrorCode, *, operations: bool = False
) -> MetadataResponseTopicFields:
    return {
        "error_code": int(error),
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topic_authorized_operations": TOPIC_OPERATIONS if operations else NOT_ASKED,
    }
