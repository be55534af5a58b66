"""A hot API: the body as it came, answered through the context."""

from __future__ import annotations

from typing import Any

from milena.node.api import Answer, RequestContext

RAW = True


def handle(node: Any, ctx: RequestContext, body: memoryview) -> Answer:
    answer: Answer = node.raw(ctx, body)
    return answer
