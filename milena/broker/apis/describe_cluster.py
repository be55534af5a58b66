"""DescribeCluster (key 60), versions 0-2.

Returns the brokers that have the listener of the request, from v2 on with fenced ones if requested. ``controller_id``
is a random unfenced broker, as in Metadata. A request for controllers (v1, endpoint type 2) gets
MISMATCHED_ENDPOINT_TYPE. KIPs: 700, 919, 1073.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.metadata.metadata_view import CLUSTER_OPERATIONS, NOT_REQUESTED, unfenced_brokers
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages

if TYPE_CHECKING:
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import DescribeClusterBrokerFields, DescribeClusterRequest, DescribeClusterResponseFields
    from milena.runtime.context import Runtime

BROKERS: Final = 1
CONTROLLERS: Final = 2


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def runtime(self) -> Runtime: ...


def handle(node: Needs, ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponseFields:
    endpoint_type = messages.get(request, "endpoint_type", BROKERS)
    if endpoint_type == CONTROLLERS:
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if endpoint_type != BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}")
    include_fenced = messages.get(request, "include_fenced_brokers", False)
    image, listener = node.image, ctx.listener_name
    brokers: list[DescribeClusterBrokerFields] = [
        {
            "broker_id": broker.id,
            "host": endpoint.host,
            "port": endpoint.port,
            "rack": broker.rack,
            "is_fenced": broker.fenced,
        }
        for _, broker in sorted(image.brokers.items())
        if (include_fenced or not broker.fenced) and (endpoint := broker.endpoint(listener)) is not None
    ]
    unfenced = unfenced_brokers(image, listener)
    return {
        "error_code": 0,
        "error_message": None,
        "endpoint_type": BROKERS,
        "cluster_id": node.cluster_id,
        "controller_id": node.runtime.random.choice(unfenced)[0].id if unfenced else -1,
        "brokers": brokers,
        "cluster_authorized_operations": (
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    }
