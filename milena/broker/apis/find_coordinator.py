"""FindCoordinator (10), v0 to v6: which broker coordinates a group; several at once from v4 (KIP-699).

The coordinator is the leader of the group's partition of ``__consumer_offsets``, which the first request creates.
Coordinators of transactions and share groups there are none. A producer of transactions shall end at once and say why.
The Java client and librdkafka show our message: from v4 on with any code that they do not expect here, before with one
that they do. Others show the code alone, and Sarama asks again for 5 s, whatever it is; these are sent to this broker,
as if it were the coordinator, where InitProducerId refuses them with the one code that all take as final.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.controller_link.transactions import Refusing, log_refusal
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode
from milena.protocol.records.hashing import partition_for_group
from milena.protocol.requests.messages import get
from milena.protocol.types import OFFSETS_TOPIC

if TYPE_CHECKING:
    from milena.broker.controller_link.auto_create import AutoCreation
    from milena.node.metadata.image import ListenerImage, MetadataImage
    from milena.protocol.apis import CoordinatorFields, FindCoordinatorRequest, FindCoordinatorResponseFields
    from milena.protocol.types import NodeId

GROUP: Final = 0
TRANSACTION: Final = 1
JAVA: Final = "apache-kafka-java"
RDKAFKA: Final = "rdkafka"
"""Stands in the name of librdkafka, or in the version of what is built on it."""


class Needs(Refusing, Protocol):
    """What this handler uses of its broker."""

    @property
    def auto_create(self) -> AutoCreation: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def node_id(self) -> NodeId: ...


def handle(node: Needs, ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponseFields:
    kind = get(request, "key_type", GROUP)
    if ctx.version < 4:
        return _find(node, ctx, kind, request.key)
    return {"coordinators": [_under(key, _find(node, ctx, kind, key)) for key in request.coordinator_keys]}


def _under(key: str, found: FindCoordinatorResponseFields) -> CoordinatorFields:
    return {
        "key": key,
        "error_code": found["error_code"],
        "error_message": found["error_message"],
        "node_id": found["node_id"],
        "host": found["host"],
        "port": found["port"],
    }


def _find(node: Needs, ctx: RequestContext, kind: int, key: str) -> FindCoordinatorResponseFields:
    if kind == TRANSACTION:
        return _of_transactions(node, ctx, key)
    if kind != GROUP:
        return _none(ErrorCode.INVALID_REQUEST, f"No coordinators of key type {kind}.")
    topic = node.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        node.auto_create.create_internal([OFFSETS_TOPIC])
        return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[partition_for_group(key, len(topic.partitions))]
    leader = node.image.brokers.get(partition.leader)
    endpoint = leader.endpoint(ctx.listener_name) if leader is not None and not leader.fenced else None
    if leader is None or endpoint is None:
        return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    # As Kafka's: the error's name up to v3, nothing from v4 on.
    message = ErrorCode.NONE.name if ctx.version < 4 else ""
    return _found(leader.id, endpoint, message)


def _found(node_id: int, endpoint: ListenerImage, message: str | None) -> FindCoordinatorResponseFields:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": message,
        "node_id": node_id,
        "host": endpoint.host,
        "port": endpoint.port,
    }


def _of_transactions(node: Needs, ctx: RequestContext, key: str) -> FindCoordinatorResponseFields:
    me = node.image.brokers.get(node.node_id)
    endpoint = None if me is None else me.endpoint(ctx.listener_name)
    if endpoint is not None and not _shows_messages(ctx):
        return _found(node.node_id, endpoint, None)
    log_refusal(node, ctx, key)
    expected = ctx.version < 4
    error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if expected else ErrorCode.UNSUPPORTED_VERSION
    return _none(error, "Milena has no transactions yet.")


def _shows_messages(ctx: RequestContext) -> bool:
    """Whether the client tells its user an error's message, as far as it has told its name (KIP-511)."""
    caller = ctx.caller
    return caller.software_name == JAVA or any(
        RDKAFKA in name for name in (caller.software_name, caller.software_version)
    )


def _none(error: ErrorCode, message: str | None = None) -> FindCoordinatorResponseFields:
    return {"error_code": error, "error_message": message or error.name, "node_id": -1, "host": "", "port": -1}
