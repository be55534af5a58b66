"""DescribeUserScramCredentials (key 50), version 0: the credentials in the metadata. No listener uses them yet.
KIP-554."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.node.api import RequestContext
from milena.node.metadata.access_views import describe_scram

if TYPE_CHECKING:
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponseFields


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def image(self) -> MetadataImage: ...


def handle(
    node: Needs, ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponseFields:
    users = [user.name for user in request.users or ()]
    return {"error_code": 0, "error_message": None, "results": describe_scram(node.image, users)}
