"""UnregisterController (key 94), version 0: forwarded to the controller."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from milena.broker.controller_link.forwarding import forward
from milena.node.api import RequestContext

if TYPE_CHECKING:
    from milena.broker.controller_link.forwarding import Forwarding
    from milena.protocol.apis import UnregisterControllerRequest


def handle(node: Forwarding, ctx: RequestContext, request: UnregisterControllerRequest) -> Awaitable[None]:
    return forward(node, ctx, request)
