"""ListConfigResources (key 74), versions 0-1.

Version 0 lists only client metrics subscriptions; version 1 the resources of the requested types, or of all types if
none is requested. KIPs: 714, 1142.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from milena.node.api import RequestContext
from milena.node.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
)
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages

if TYPE_CHECKING:
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import ListConfigResourcesRequest, ListConfigResourcesResponseFields

_TYPES: Final = (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE, BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE)


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def image(self) -> MetadataImage: ...


def handle(node: Needs, ctx: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponseFields:
    types: tuple[int, ...] = (CLIENT_METRICS_RESOURCE,)
    if ctx.version > 0:
        types = tuple(dict.fromkeys(messages.get(request, "resource_types", ()))) or _TYPES
    unsupported = [resource_type for resource_type in types if resource_type not in _TYPES]
    if unsupported:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return {
        "error_code": 0,
        "config_resources": [
            {"resource_name": name, "resource_type": resource_type}
            for resource_type in types
            for name in _names(node.image, resource_type)
        ],
    }


def _names(image: MetadataImage, resource_type: int) -> list[str]:
    if resource_type == TOPIC_RESOURCE:
        return sorted(image.topics)
    if resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        return [str(broker) for broker in sorted(image.brokers)]
    return sorted(name for resource, name in image.configs if resource == resource_type and name)
