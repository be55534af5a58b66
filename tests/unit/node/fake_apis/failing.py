"""A cold API with its own form of failure."""

from __future__ import annotations

from typing import Any

from milena.node.api import Answer, Fields, RequestContext
from milena.protocol.errors import KafkaError


def handle(node: Any, ctx: RequestContext, request: Any) -> Answer:
    raise node.error


def failed(ctx: RequestContext, request: Any, error: KafkaError) -> Fields:
    return {"topics": [{"name": topic.name, "error_code": int(error.code)} for topic in request.topics]}
