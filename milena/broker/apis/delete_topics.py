"""DeleteTopics (key 20), versions 1-6, by name or (v6) by topic id: forwarded to the controller."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from milena.broker.controller_link.forwarding import forward
from milena.node.api import RequestContext
from milena.protocol.errors import KafkaError

if TYPE_CHECKING:
    from milena.broker.controller_link.forwarding import Forwarding
    from milena.protocol.apis import DeleteTopicsRequest, DeleteTopicsResponseFields


def handle(node: Forwarding, ctx: RequestContext, request: DeleteTopicsRequest) -> Awaitable[None]:
    return forward(node, ctx, request)


def failed(ctx: RequestContext, request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponseFields:
    topics = [(topic.name, topic.topic_id) for topic in getattr(request, "topics", ())]
    topics += [(name, None) for name in getattr(request, "topic_names", ())]
    return {
        "responses": [
            {"name": name, "topic_id": topic_id, "error_code": int(error.code), "error_message": error.text}
            for name, topic_id in topics
        ]
    }
