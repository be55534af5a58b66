"""DescribeAcls (key 29), versions 1-3: always SECURITY_DISABLED, since there is no authorizer (KIP-140)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from milena.protocol.apis import DescribeAclsResponseFields

CODE: Final = int(ErrorCode.SECURITY_DISABLED)
MESSAGE: Final = "No authorizer is configured: all operations are allowed."


def handle(node: object, ctx: RequestContext, request: object) -> DescribeAclsResponseFields:
    return {"error_code": CODE, "error_message": MESSAGE, "resources": []}
