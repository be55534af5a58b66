"""JoinGroup (key 11), versions 0-9: join a classic group and wait for its next generation.

The response is sent when all members have joined; in a new group after ``group.initial.rebalance.delay.ms``.
KIPs: 62 (rebalance timeout), 345 (static members), 394 (member id required, v4), 800 (reason), 814 (skip assignment,
v9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.broker.groups.joining import join
from milena.broker.groups.model import JoinAnswer, JoinRequest, ReplyOnce
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.messages import get

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.protocol.apis import JoinGroupRequest, JoinGroupResponseFields
    from milena.runtime.context import Runtime


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def runtime(self) -> Runtime: ...


def handle(node: Needs, ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponseFields | None:
    join_request = _request(ctx, request)
    settings = node.groups.settings
    if not request.group_id:
        return _fields(ctx, JoinAnswer(ErrorCode.INVALID_GROUP_ID, join_request.member_id))
    if not settings.min_session_ms <= join_request.session_timeout_ms <= settings.max_session_ms:
        return _fields(ctx, JoinAnswer(ErrorCode.INVALID_SESSION_TIMEOUT, join_request.member_id))
    try:
        shard = node.groups.shard(request.group_id)
    except KafkaError as error:
        return _fields(ctx, JoinAnswer(error.code, ""))
    group = shard.get(request.group_id)
    if group is None and join_request.member_id:
        return _fields(ctx, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, join_request.member_id))
    group = group or shard.get_or_create(request.group_id)
    reply = ReplyOnce[JoinAnswer](lambda answer: ctx.respond_fields(**_fields(ctx, answer)), ctx.lost)
    if not shard.attempt(group, lambda: join(group, join_request, reply, node.runtime.clock.time_ms())):
        reply(JoinAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, join_request.member_id))
    return None


def _request(ctx: RequestContext, request: JoinGroupRequest) -> JoinRequest:
    session_timeout_ms = get(request, "session_timeout", 0)
    return JoinRequest(
        member_id=request.member_id,
        instance_id=get(request, "group_instance_id", None),
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.client_host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=get(request, "rebalance_timeout", session_timeout_ms),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        needs_known_member_id=ctx.version >= 4,
        can_skip_assignment=ctx.version >= 9,
    )


def _fields(ctx: RequestContext, answer: JoinAnswer) -> JoinGroupResponseFields:
    # The protocol name is nullable from v7 on; before, it is empty if there is no protocol.
    no_protocol = None if ctx.version >= 7 else ""
    return {
        "error_code": answer.error,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name if answer.protocol_name is not None else no_protocol,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
            for member in answer.members
        ],
    }
