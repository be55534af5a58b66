"""DescribeGroups (key 15), versions 0-6: state and members of classic groups.

A group that does not exist has the state Dead; from v6 on the error GROUP_ID_NOT_FOUND too (KIP-1043).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.groups.group import Group
from milena.broker.groups.model import GroupState, Member
from milena.node.api import RequestContext
from milena.node.serving.repeats import Repeats
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.messages import get

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.protocol.apis import (
        DescribedGroupFields,
        DescribedGroupMemberFields,
        DescribeGroupsRequest,
        DescribeGroupsResponseFields,
    )

BYTES_PER_ELEMENT: Final = 100
"""Bytes of members' metadata and assignments that count as one element of the response."""
NOT_REQUESTED: Final = -(1 << 31)
"""The value of authorized_operations if the client has not requested them."""
ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: all operations on a group. Without an authorizer, all are
allowed."""


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def groups(self) -> GroupCoordinator: ...


def handle(
    node: Needs, ctx: RequestContext, request: DescribeGroupsRequest
) -> Cooperative[DescribeGroupsResponseFields]:
    """Describe the groups. Raises KafkaError INVALID_REQUEST if repeated groups make the response too large
    (``Repeats``)."""
    operations = ALL_OPERATIONS if get(request, "include_authorized_operations", False) else NOT_REQUESTED
    repeats = Repeats()

    def describe(group_id: str) -> DescribedGroupFields:
        described = _describe(node, ctx, group_id)
        repeats.note(group_id, _weight(described.get("members", ())))
        return {"group_id": group_id, "authorized_operations": operations, **described}

    return {"groups": (yield from YieldBudget().apply(request.groups, describe))}


def _weight(members: Sequence[DescribedGroupMemberFields]) -> int:
    """The size of one group in the response, in elements."""
    size = sum(len(member["member_metadata"]) + len(member["member_assignment"]) for member in members)
    return 1 + len(members) + size // BYTES_PER_ELEMENT


def _describe(node: Needs, ctx: RequestContext, group_id: str) -> DescribedGroupFields:
    try:
        group = node.groups.shard_for_offsets(group_id).get(group_id)
    except KafkaError as error:
        return {"error_code": error.code, "authorized_operations": NOT_REQUESTED}
    if group is not None:
        return _group(group)
    dead: DescribedGroupFields = {"group_state": GroupState.DEAD.value}
    if ctx.version >= 6:
        dead |= {
            "error_code": ErrorCode.GROUP_ID_NOT_FOUND,
            "error_message": f"Group {group_id} not found.",
            "authorized_operations": NOT_REQUESTED,
        }
    return dead


def _group(group: Group) -> DescribedGroupFields:
    # As in Kafka, protocol and metadata are shown only for a stable group.
    stable = group.state is GroupState.STABLE
    return {
        "error_code": ErrorCode.NONE,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol_name or "") if stable else "",
        "members": [_member(member, group.protocol_name if stable else None) for member in group.members.values()],
    }


def _member(member: Member, protocol_name: str | None) -> DescribedGroupMemberFields:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata(protocol_name),
        "member_assignment": member.assignment,
    }
