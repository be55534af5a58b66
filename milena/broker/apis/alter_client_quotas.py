"""AlterClientQuotas (key 49), versions 0-1: forwarded to the controller."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from milena.broker.controller_link.forwarding import forward
from milena.node.api import RequestContext
from milena.node.metadata.access_views import failed_entries
from milena.protocol.errors import KafkaError

if TYPE_CHECKING:
    from milena.broker.controller_link.forwarding import Forwarding
    from milena.protocol.apis import AlterClientQuotasRequest, AlterClientQuotasResponseFields


def handle(node: Forwarding, ctx: RequestContext, request: AlterClientQuotasRequest) -> Awaitable[None]:
    return forward(node, ctx, request)


def failed(
    ctx: RequestContext, request: AlterClientQuotasRequest, error: KafkaError
) -> AlterClientQuotasResponseFields:
    return failed_entries(request, error)
