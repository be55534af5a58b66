"""SyncGroup (key 14), versions 0-5: the leader sends all assignments, each member gets its own.

KIPs: 345 (static members, v3), 559 (protocol type and name, v5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.groups.membership import sync
from milena.broker.groups.model import ReplyOnce, SyncAnswer
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.messages import get

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.protocol.apis import SyncGroupRequest, SyncGroupResponseFields
    from milena.runtime.context import Runtime

_PROTOCOL_SINCE: Final = 5


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def runtime(self) -> Runtime: ...


def handle(node: Needs, ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponseFields | None:
    if ctx.version >= _PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        return _fields(SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    try:
        shard = node.groups.shard(request.group_id)
    except KafkaError as error:
        # As in Kafka: the group that is being loaded has no members that wait, so this member has to rejoin.
        loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return _fields(SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code))
    group = shard.get(request.group_id)
    if group is None:
        return _fields(SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
    reply = ReplyOnce[SyncAnswer](lambda answer: ctx.respond_fields(**_fields(answer)), ctx.lost)

    def step() -> None:
        sync(
            group,
            member_id=request.member_id,
            instance_id=get(request, "group_instance_id", None),
            generation=request.generation_id,
            protocol_type=get(request, "protocol_type", None),
            protocol_name=get(request, "protocol_name", None),
            assignments={share.member_id: bytes(share.assignment) for share in request.assignments},
            reply=reply,
            now_ms=node.runtime.clock.time_ms(),
        )

    if not shard.attempt(group, step):
        reply(SyncAnswer(ErrorCode.UNKNOWN_SERVER_ERROR))
    return None


def _fields(answer: SyncAnswer) -> SyncGroupResponseFields:
    return {
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }
