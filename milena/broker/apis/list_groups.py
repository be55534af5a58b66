"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates, filtered by state (KIP-518) and type
(KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode
from milena.protocol.requests.messages import get

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.protocol.apis import ListedGroupFields, ListGroupsRequest, ListGroupsResponseFields

GROUP_TYPE: Final = "classic"


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def groups(self) -> GroupCoordinator: ...


def handle(node: Needs, ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponseFields:
    """List the groups. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS."""
    states = {state.lower() for state in get(request, "states_filter", ())}
    types = {kind.lower() for kind in get(request, "types_filter", ())}
    groups: list[ListedGroupFields] = [
        {
            "group_id": group.group_id,
            "protocol_type": group.protocol_type or "",
            "group_state": group.state.value,
            "group_type": GROUP_TYPE,
        }
        for shard in node.groups.shards()
        for group in shard.groups.values()
        if (not states or group.state.value.lower() in states) and (not types or GROUP_TYPE in types)
    ]
    return {"error_code": ErrorCode.NONE, "groups": groups}
