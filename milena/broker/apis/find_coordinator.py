"""FindCoordinator (key 10), versions 0-6: which broker coordinates a group; several groups from v4 on (KIP-699).

The coordinator is the leader of the group's partition of ``__consumer_offsets``; the first request creates the topic.
There are no coordinators of transactions and share groups. A transactional producer should fail at once, with a reason:

- The Java client and librdkafka show our error message. From v4 on it comes with UNSUPPORTED_VERSION, which they do not
  expect in this response; before v4 with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which they do.
- Other clients do not show it, and Sarama retries any error for 5 s. They get this broker as the coordinator, whose
  InitProducerId refuses them with the one code that all clients treat as fatal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.controller_link.transactions import HasClientLog, log_refusal
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
LIBRDKAFKA: Final = "rdkafka"
"""Contained in the software name of librdkafka, or in the software version of clients that are based on it."""


class Needs(HasClientLog, Protocol):
    """What this handler uses of its broker."""

    @property
    def auto_create(self) -> AutoCreation: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def node_id(self) -> NodeId: ...


def handle(node: Needs, ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponseFields:
    key_type = get(request, "key_type", GROUP)
    if ctx.version < 4:
        return _find(node, ctx, key_type, request.key)
    return {"coordinators": [_with_key(key, _find(node, ctx, key_type, key)) for key in request.coordinator_keys]}


def _with_key(key: str, coordinator: FindCoordinatorResponseFields) -> CoordinatorFields:
    return {
        "key": key,
        "error_code": coordinator["error_code"],
        "error_message": coordinator["error_message"],
        "node_id": coordinator["node_id"],
        "host": coordinator["host"],
        "port": coordinator["port"],
    }


def _find(node: Needs, ctx: RequestContext, key_type: int, key: str) -> FindCoordinatorResponseFields:
    if key_type == TRANSACTION:
        return _refuse_transactions(node, ctx, key)
    if key_type != GROUP:
        return _no_coordinator(ErrorCode.INVALID_REQUEST, f"There are no coordinators of key type {key_type}.")
    topic = node.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        node.auto_create.create_internal([OFFSETS_TOPIC])
        return _no_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[partition_for_group(key, len(topic.partitions))]
    leader = node.image.brokers.get(partition.leader)
    endpoint = leader.endpoint(ctx.listener_name) if leader is not None and not leader.fenced else None
    if leader is None or endpoint is None:
        return _no_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    # As in Kafka, the message is the error's name up to v3, and empty from v4 on.
    message = ErrorCode.NONE.name if ctx.version < 4 else ""
    return _coordinator(leader.id, endpoint, message)


def _coordinator(node_id: int, endpoint: ListenerImage, message: str | None) -> FindCoordinatorResponseFields:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": message,
        "node_id": node_id,
        "host": endpoint.host,
        "port": endpoint.port,
    }


def _refuse_transactions(node: Needs, ctx: RequestContext, key: str) -> FindCoordinatorResponseFields:
    own_broker = node.image.brokers.get(node.node_id)
    endpoint = None if own_broker is None else own_broker.endpoint(ctx.listener_name)
    if endpoint is not None and not _shows_messages(ctx):
        return _coordinator(node.node_id, endpoint, None)
    log_refusal(node, ctx, key)
    expected = ctx.version < 4
    error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if expected else ErrorCode.UNSUPPORTED_VERSION
    return _no_coordinator(error, "Milena has no transactions yet.")


def _shows_messages(ctx: RequestContext) -> bool:
    """Whether the client shows error messages to its user, by the software name that it has sent (KIP-511)."""
    caller = ctx.caller
    return caller.software_name == JAVA or any(
        LIBRDKAFKA in name for name in (caller.software_name, caller.software_version)
    )


def _no_coordinator(error: ErrorCode, message: str | None = None) -> FindCoordinatorResponseFields:
    return {"error_code": error, "error_message": message or error.name, "node_id": -1, "host": "", "port": -1}
