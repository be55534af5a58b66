"""UnregisterBroker (key 64), version 0: answered by the controller."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from broker.forwarding import forward
from node.api import RequestContext

if TYPE_CHECKING:
    from broker.server import Broker


def handle(node: Broker, ctx: RequestContext, request: Any) -> Awaitable[None]:
    return forward(node, ctx, request)
