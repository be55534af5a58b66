"""Heartbeat (key 12), versions 0-4: extends the session of a member of a classic group. KIP-345 (static members,
v3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.broker.groups.membership import heartbeat
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.messages import get

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.protocol.apis import HeartbeatRequest, HeartbeatResponseFields
    from milena.runtime.context import Runtime


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def runtime(self) -> Runtime: ...


def handle(node: Needs, ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponseFields:
    try:
        shard = node.groups.shard(request.group_id)
    except KafkaError as error:
        # No session expires while groups are loaded, so the member need not react, as in Kafka.
        loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return {"error_code": ErrorCode.NONE if loading else error.code}
    group = shard.get(request.group_id)
    if group is None:
        return {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}
    error_code = heartbeat(
        group,
        member_id=request.member_id,
        instance_id=get(request, "group_instance_id", None),
        generation=request.generation_id,
        now_ms=node.runtime.clock.time_ms(),
    )
    return {"error_code": error_code}
