"""CreateAcls (key 30), versions 1-3: always SECURITY_DISABLED, since there is no authorizer (KIP-140)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milena.node.api import RequestContext
from milena.node.apis.describe_acls import CODE, MESSAGE

if TYPE_CHECKING:
    from milena.protocol.apis import CreateAclsRequest, CreateAclsResponseFields


def handle(node: object, ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponseFields:
    return {"results": [{"error_code": CODE, "error_message": MESSAGE} for _ in request.creations]}
