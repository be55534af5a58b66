"""UnregisterController (key 94), version 0: remove the registration of a controller that will not come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milena.controller.commands.controllers import unregister
from milena.node.api import Reply, RequestContext

if TYPE_CHECKING:
    from milena.controller.state.result import Committing
    from milena.protocol.apis import UnregisterControllerRequest, UnregisterControllerResponseFields


def handle(
    node: Committing, ctx: RequestContext, request: UnregisterControllerRequest
) -> Reply[UnregisterControllerResponseFields]:
    result = unregister(node.state, request.controller_id)
    return node.commit(result, _answer)


def _answer(_: object) -> UnregisterControllerResponseFields:
    return {"error_code": 0, "error_message": None}
