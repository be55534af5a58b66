"""UnregisterBroker (key 64), version 0: a broker that will not come back is forgotten. KIP-631."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

from milena.controller.commands.brokers import unregister
from milena.node.api import RequestContext

if TYPE_CHECKING:
    from milena.controller.state.committing import Committing


def handle(node: Committing, ctx: RequestContext, request: Any) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
    result = unregister(node.state, request.broker_id)
    return node.commit(result, lambda _: {"error_code": 0, "error_message": None})
