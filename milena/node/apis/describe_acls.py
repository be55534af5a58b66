"""DescribeAcls (key 29), versions 1-3: always SECURITY_DISABLED, since there is no authorizer (KIP-140)."""

from __future__ import annotations

from typing import Final

from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode

REFUSAL: Final = {
    "error_code": int(ErrorCode.SECURITY_DISABLED),
    "error_message": "This cluster has no authorizer: everything is allowed to everybody.",
}


def handle(node: object, ctx: RequestContext, request: object) -> dict[str, object]:
    return {**REFUSAL, "resources": []}
