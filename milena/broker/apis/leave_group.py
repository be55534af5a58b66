"""LeaveGroup (key 13), versions 0-5: members leave a classic group; several from v3 on (KIP-345), with a reason from v5
on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from milena.broker.groups.group import Group
from milena.broker.groups.membership import leave
from milena.broker.groups.shard import Shard
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode
from milena.protocol.requests.messages import get

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.protocol.apis import LeaveGroupRequest, LeaveGroupResponseFields, MemberResponseFields
    from milena.runtime.context import Runtime


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def runtime(self) -> Runtime: ...


def handle(node: Needs, ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponseFields:
    """Remove members. Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID."""
    shard = node.groups.shard(request.group_id)
    group = shard.get(request.group_id)
    if ctx.version >= 3:
        leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    else:
        leaving = [(get(request, "member_id", ""), None)]
    errors = _leave(node, shard, group, leaving)
    members = list(map(_result, zip(leaving, errors, strict=True)))
    return {"error_code": ErrorCode.NONE if ctx.version >= 3 else errors[0], "members": members}


def _result(member_error: tuple[tuple[str, str | None], ErrorCode]) -> MemberResponseFields:
    (member_id, instance_id), error = member_error
    return {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}


def _leave(
    node: Needs, shard: Shard, group: Group | None, leaving: Sequence[tuple[str, str | None]]
) -> list[ErrorCode]:
    """Remove all members in one step of the group, so that its timer is set once. Returns one error per member; after
    an unexpected error the remaining members have UNKNOWN_SERVER_ERROR."""
    if group is None:
        return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
    errors: list[ErrorCode] = []

    def step() -> None:
        now_ms = node.runtime.clock.time_ms()
        for member_id, instance_id in leaving:
            errors.append(leave(group, member_id=member_id, instance_id=instance_id, now_ms=now_ms))

    shard.attempt(group, step)
    return errors + [ErrorCode.UNKNOWN_SERVER_ERROR] * (len(leaving) - len(errors))
