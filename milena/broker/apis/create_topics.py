"""CreateTopics (key 19), versions 2-7: answered by the controller."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from milena.broker.controller_link.forwarding import failed_topics, forward
from milena.node.api import RequestContext
from milena.protocol.errors import KafkaError

if TYPE_CHECKING:
    from milena.broker.controller_link.forwarding import Forwarding


def handle(node: Forwarding, ctx: RequestContext, request: Any) -> Awaitable[None]:
    return forward(node, ctx, request)


def failed(ctx: RequestContext, request: Any, error: KafkaError) -> dict[str, Any]:
    return failed_topics(request, error, field="topics")
