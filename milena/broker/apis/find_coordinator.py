"""FindCoordinator (key 10), versions 0-6: which broker coordinates a group or a transactional id; several of them from
v4 on (KIP-699).

The coordinator is the leader of the key's partition of ``__consumer_offsets`` or ``__transaction_state``; the first
request creates the topic. There are no coordinators of share groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from milena.node.api import RequestContext
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode
from milena.protocol.records.hashing import hashing_units, partition_for_group
from milena.protocol.requests.messages import get
from milena.protocol.types import OFFSETS_TOPIC, TRANSACTION_TOPIC

if TYPE_CHECKING:
    from milena.broker.controller_link.auto_create import AutoCreation
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import CoordinatorFields, FindCoordinatorRequest, FindCoordinatorResponseFields

GROUP: Final = 0
TOPICS: Final[Mapping[int, str]] = {GROUP: OFFSETS_TOPIC, 1: TRANSACTION_TOPIC}
"""The topic whose leaders coordinate, by key type."""


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def auto_create(self) -> AutoCreation: ...
    @property
    def image(self) -> MetadataImage: ...


def handle(
    node: Needs, ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponseFields | Cooperative[FindCoordinatorResponseFields]:
    key_type = get(request, "key_type", GROUP)
    if ctx.version < 4:
        return _find(node, ctx, key_type, request.key)
    return _find_all(node, ctx, key_type, request.coordinator_keys)


def _find_all(
    node: Needs, ctx: RequestContext, key_type: int, keys: Iterable[str]
) -> Cooperative[FindCoordinatorResponseFields]:
    coordinators: list[CoordinatorFields] = []
    budget = YieldBudget()
    for key in keys:
        coordinators.append(_with_key(key, _find(node, ctx, key_type, key)))
        if budget.spend(hashing_units(key)):
            yield
    return {"coordinators": coordinators}


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
    name = TOPICS.get(key_type)
    if name is None:
        return _no_coordinator(ErrorCode.INVALID_REQUEST, f"There are no coordinators of key type {key_type}.")
    topic = node.image.topics.get(name)
    if topic is None:
        node.auto_create.create_internal([name])
        return _no_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[partition_for_group(key, len(topic.partitions))]
    leader = node.image.brokers.get(partition.leader)
    endpoint = leader.endpoint(ctx.listener_name) if leader is not None and not leader.fenced else None
    if leader is None or endpoint is None:
        return _no_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    # As in Kafka, the message is the error's name up to v3, and empty from v4 on.
    message = ErrorCode.NONE.name if ctx.version < 4 else ""
    return {
        "error_code": ErrorCode.NONE,
        "error_message": message,
        "node_id": leader.id,
        "host": endpoint.host,
        "port": endpoint.port,
    }


def _no_coordinator(error: ErrorCode, message: str | None = None) -> FindCoordinatorResponseFields:
    return {"error_code": error, "error_message": message or error.name, "node_id": -1, "host": "", "port": -1}
