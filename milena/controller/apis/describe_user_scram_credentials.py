"""DescribeUserScramCredentials (key 50), version 0: those in the metadata. No listener uses SCRAM yet. KIP-554."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.node.api import RequestContext
from milena.node.metadata.access_views import describe_scram

if TYPE_CHECKING:
    from milena.controller.state.state import ControllerState
    from milena.protocol.apis import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponseFields


class Needs(Protocol):
    """What this handler uses of its controller."""

    @property
    def state(self) -> ControllerState: ...


def handle(
    node: Needs, ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponseFields:
    users = [user.name for user in request.users or ()]
    return {"error_code": 0, "error_message": None, "results": describe_scram(node.state.image, users)}
