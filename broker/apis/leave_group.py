"""LeaveGroup (13), v0 to v5: members leave a classic group; from v3 several at once (KIP-345), v5 with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from broker.groups.group import Group
from broker.groups.membership import leave
from broker.groups.shard import Shard
from node.api import RequestContext
from protocol.errors import ErrorCode
from protocol.messages import get

if TYPE_CHECKING:
    from broker.server import Broker


def handle(node: Broker, ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID."""
    shard = node.groups.shard(request.group_id)
    group = shard.get(request.group_id)
    if ctx.version >= 3:
        leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    else:
        leaving = [(get(request, "member_id", ""), None)]
    results = [
        (*one, ErrorCode.UNKNOWN_MEMBER_ID if group is None else _leave(node, shard, group, *one)) for one in leaving
    ]
    return {
        "error_code": ErrorCode.NONE if ctx.version >= 3 else results[0][2],
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
            for member_id, instance_id, error in results
        ],
    }


def _leave(node: Broker, shard: Shard, group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    results: list[ErrorCode] = []

    def step() -> None:
        now_ms = node.runtime.clock.time_ms()
        results.append(leave(group, member_id=member_id, instance_id=instance_id, now_ms=now_ms))

    return results[0] if shard.attempt(group, step) else ErrorCode.UNKNOWN_SERVER_ERROR
