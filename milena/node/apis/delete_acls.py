"""DeleteAcls (key 31), versions 1-3: always SECURITY_DISABLED, since there is no authorizer (KIP-140)."""

from __future__ import annotations

from typing import Any

from milena.node.api import RequestContext
from milena.node.apis.describe_acls import REFUSAL


def handle(node: object, ctx: RequestContext, request: Any) -> dict[str, object]:
    return {"filter_results": [{**REFUSAL, "matching_acls": []}] * len(request.filters)}
