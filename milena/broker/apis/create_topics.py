"""CreateTopics (key 19), versions 2-7: forwarded to the controller."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from milena.broker.controller_link.forwarding import forward
from milena.node.api import RequestContext
from milena.protocol.errors import KafkaError

if TYPE_CHECKING:
    from milena.broker.controller_link.forwarding import Forwarding
    from milena.protocol.apis import CreateTopicsRequest, CreateTopicsResponseFields


def handle(node: Forwarding, ctx: RequestContext, request: CreateTopicsRequest) -> Awaitable[None]:
    return forward(node, ctx, request)


def failed(ctx: RequestContext, request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponseFields:
    return {
        "topics": [
            {"name": topic.name, "error_code": int(error.code), "error_message": error.text} for topic in request.topics
        ]
    }
