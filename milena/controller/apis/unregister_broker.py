"""UnregisterBroker (key 64), version 0: remove the registration of a broker for good. KIP-631."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milena.controller.commands.brokers import unregister
from milena.node.api import Reply, RequestContext

if TYPE_CHECKING:
    from milena.controller.state.result import Committing
    from milena.protocol.apis import UnregisterBrokerRequest, UnregisterBrokerResponseFields


def handle(
    node: Committing, ctx: RequestContext, request: UnregisterBrokerRequest
) -> Reply[UnregisterBrokerResponseFields]:
    result = unregister(node.state, request.broker_id)
    return node.commit(result, _answer)


def _answer(_: object) -> UnregisterBrokerResponseFields:
    return {"error_code": 0, "error_message": None}
