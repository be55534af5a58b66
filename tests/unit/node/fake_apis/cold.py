"""A cold API: decoded, answered with fields."""

from __future__ import annotations

from typing import Any

from milena.node.api import Answer, RequestContext


def handle(node: Any, ctx: RequestContext, request: Any) -> Answer:
    answer: Answer = node.cold(ctx, request)
    return answer
