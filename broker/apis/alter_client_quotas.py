"""AlterClientQuotas (key 49), versions 0-1: answered by the controller."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from broker.forwarding import forward
from node.access_views import failed_entries
from node.api import RequestContext
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from broker.server import Broker


def handle(node: Broker, ctx: RequestContext, request: Any) -> Awaitable[None]:
    return forward(node, ctx, request)


def failed(ctx: RequestContext, request: Any, error: KafkaError) -> dict[str, Any]:
    return failed_entries(request, error)
