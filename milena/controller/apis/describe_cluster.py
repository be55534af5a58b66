"""DescribeCluster (key 60), versions 0-2: the controllers, for clients with ``bootstrap.controllers`` (KIP-919).

A request for brokers fails with MISMATCHED_ENDPOINT_TYPE: only brokers answer it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages

if TYPE_CHECKING:
    from milena.controller.state.state import ControllerState
    from milena.protocol.apis import DescribeClusterBrokerFields, DescribeClusterRequest, DescribeClusterResponseFields
    from milena.protocol.types import NodeId

BROKERS: Final = 1
CONTROLLERS: Final = 2
NOT_REQUESTED: Final = -(2**31)
"""In place of the operations, if the request does not ask for them."""
CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""The operations (Kafka's AclOperation) on a cluster resource, as a bit field: all are allowed without an
authorizer."""


class Needs(Protocol):
    """What this handler uses of its controller."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def node_id(self) -> NodeId: ...
    @property
    def state(self) -> ControllerState: ...


def handle(node: Needs, ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponseFields:
    kind = messages.get(request, "endpoint_type", BROKERS)
    if kind not in (BROKERS, CONTROLLERS):
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"The endpoint type {kind} is unknown.")
    if kind == BROKERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if ctx.version else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "This is an endpoint of type CONTROLLER, but the request is for one of type BROKER.")
    nodes: list[DescribeClusterBrokerFields] = [
        {"broker_id": controller.id, "host": endpoint.host, "port": endpoint.port, "rack": None}
        for controller in node.state.image.controllers.values()
        for endpoint in controller.endpoints
        if endpoint.name == ctx.listener_name
    ]
    return {
        "error_code": 0,
        "error_message": None,
        "endpoint_type": CONTROLLERS,
        "cluster_id": node.cluster_id,
        "controller_id": node.node_id if any(found["broker_id"] == node.node_id for found in nodes) else -1,
        "brokers": nodes,
        "cluster_authorized_operations": (
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    }
