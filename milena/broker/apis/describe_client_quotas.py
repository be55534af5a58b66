"""DescribeClientQuotas (key 48), versions 0-1. Client quotas are stored like in Kafka, but not enforced. KIP-546."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.node.api import RequestContext
from milena.node.metadata.access_views import describe_quotas
from milena.protocol.errors import KafkaError

if TYPE_CHECKING:
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import DescribeClientQuotasRequest, DescribeClientQuotasResponseFields


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def image(self) -> MetadataImage: ...


def handle(
    node: Needs, ctx: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponseFields:
    entries = describe_quotas(node.image, request.components, strict=request.strict)
    return {"error_code": 0, "error_message": None, "entries": entries}


def failed(
    ctx: RequestContext, request: DescribeClientQuotasRequest, error: KafkaError
) -> DescribeClientQuotasResponseFields:
    return {"error_code": int(error.code), "error_message": error.text, "entries": None}
