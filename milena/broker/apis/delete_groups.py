"""DeleteGroups (key 42), versions 0-3: delete empty groups and their offsets. KIP-229.

The messages of v3 are null: Kafka 4.4 sets one for streams groups only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from milena.broker.groups.offsets import delete_refusal
from milena.node.api import RequestContext
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.protocol.apis import DeleteGroupsRequest, DeleteGroupsResponseFields


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def groups(self) -> GroupCoordinator: ...


def handle(
    node: Needs, ctx: RequestContext, request: DeleteGroupsRequest
) -> Cooperative[DeleteGroupsResponseFields | None]:
    """The response is sent when the tombstones of all groups are committed or were refused. An error that depends on
    uncommitted writes is sent when these are committed."""
    names = list(dict.fromkeys(request.groups_names))
    results: dict[str, ErrorCode] = {}

    @ctx.answering
    def finished(group_id: str, error: ErrorCode) -> None:
        results[group_id] = error
        if len(results) == len(names):
            ctx.respond_fields(results=[{"group_id": name, "error_code": results[name]} for name in names])

    yield from YieldBudget().apply(names, lambda group_id: _delete(node, group_id, partial(finished, group_id)))
    return None if names else {"results": []}


def _delete(node: Needs, group_id: str, done: Callable[[ErrorCode], None]) -> None:
    try:
        shard = node.groups.shard_for_offsets(group_id)
    except KafkaError as error:
        done(error.code)
        return
    group = shard.get(group_id)
    refusal = ErrorCode.GROUP_ID_NOT_FOUND if group is None else delete_refusal(group)
    if group is not None and refusal is None:
        shard.remove_group(group, done)
    else:
        shard.when_all_committed(lambda error: done(error or refusal or ErrorCode.NONE))
