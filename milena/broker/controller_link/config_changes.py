"""AlterConfigs and IncrementalAlterConfigs: the broker validates each resource before it forwards the request, like
Kafka's ConfigAdminManager (KAFKA-13749).

The configuration of a broker can be changed only through that broker, which also changes the levels of its loggers
itself. Valid resources are forwarded in one request; the response has all resources in the order of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeGuard

from milena.broker.controller_link.forwarding import Forwarding, ask_controller, forward
from milena.broker.metadata.log_levels import change_levels
from milena.config.cleaner_rules import check_cleaner_change
from milena.config.providers import check_resolved
from milena.config.values import ConfigError
from milena.node.api import RequestContext
from milena.node.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.requests.repeated import repeated_in
from milena.runtime.numbers import whole
from milena.runtime.tcp.hosts import shown

if TYPE_CHECKING:
    from milena.config.node_config import NodeConfig
    from milena.protocol.apis import (
        AlterConfigsRequest,
        AlterConfigsResource,
        AlterConfigsResourceResponseFields,
        AlterConfigsResponse,
        AlterConfigsResponseFields,
        IncrementalAlterConfigsAlterConfigsResource,
    )
    from milena.protocol.types import NodeId

_CONTROLLER_RESOURCES: Final = frozenset({TOPIC_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE})
_FIXED_KEYS: Final = frozenset({"listeners", "advertised.listeners"})
_DELETE: Final = 1


class ConfigOwner(Forwarding, Protocol):
    """What these handlers use of their broker."""

    @property
    def node_id(self) -> NodeId: ...


async def handle(
    node: ConfigOwner, ctx: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponseFields | None:
    """Handle AlterConfigs or IncrementalAlterConfigs. Returns None if the whole request was forwarded and the
    controller's response sent on. Raises KafkaError if the controller does not answer."""
    resources = [(resource.resource_type, resource.resource_name) for resource in request.resources]
    repeated = repeated_in(resources)
    local_results: dict[int, KafkaError | None] = {}
    for index, resource in enumerate(request.resources):
        error = _error_of(node, ctx, resource, repeated=resources[index] in repeated)
        if error is not None or resource.resource_type == BROKER_LOGGER_RESOURCE:
            local_results[index] = error or _change_levels(node, ctx, resource, validate_only=request.validate_only)
    # The usual case: the controller's response is sent on without decoding it.
    if not local_results:
        await forward(node, ctx, request)
        return None
    forwarded = tuple(resource for index, resource in enumerate(request.resources) if index not in local_results)
    controller_results: dict[tuple[int, str], AlterConfigsResourceResponseFields] = {}
    if forwarded:
        body = await ask_controller(node, ctx, messages.replaced(request, resources=forwarded))
        answer: AlterConfigsResponse = messages.decode_response(ctx.header.api_key, ctx.version, body)
        controller_results = {
            (result.resource_type, result.resource_name): {
                "resource_type": result.resource_type,
                "resource_name": result.resource_name,
                "error_code": result.error_code,
                "error_message": result.error_message,
            }
            for result in answer.responses
        }
    return {
        "responses": [
            _result(request.resources[index], local_results[index])
            if index in local_results
            else controller_results[resource]
            for index, resource in enumerate(resources)
        ]
    }


def failed(ctx: RequestContext, request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponseFields:
    return {"responses": [_result(resource, error) for resource in request.resources]}


def _result(resource: AlterConfigsResource, error: KafkaError | None) -> AlterConfigsResourceResponseFields:
    return {
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "error_code": int(error.code) if error else 0,
        "error_message": error.text if error else None,
    }


def _change_levels(
    node: ConfigOwner, ctx: RequestContext, resource: AlterConfigsResource, *, validate_only: bool
) -> KafkaError | None:
    if not _is_incremental(resource, ctx):
        return KafkaError(ErrorCode.INVALID_REQUEST, f"The resource type {resource.resource_type} is unknown.")
    try:
        change_levels(node.node_id, resource, validate_only=validate_only)
    except KafkaError as error:
        return error
    return None


def _is_incremental(
    resource: AlterConfigsResource, ctx: RequestContext
) -> TypeGuard[IncrementalAlterConfigsAlterConfigsResource]:
    return ctx.header.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS


def _error_of(
    node: ConfigOwner, ctx: RequestContext, resource: AlterConfigsResource, *, repeated: bool
) -> KafkaError | None:
    reason = "The resource is given twice." if repeated else _rejection(node.node_id, resource)
    if reason is None and resource.resource_type == BROKER_RESOURCE:
        reason = _broker_rejection(node.config, resource, incremental=_is_incremental(resource, ctx))
    return KafkaError(ErrorCode.INVALID_REQUEST, reason) if reason else None


def _rejection(node_id: int, resource: AlterConfigsResource) -> str | None:
    """Return why this broker rejects a resource, or None."""
    keys = [config.name for config in resource.configs]
    if len(set(keys)) < len(keys):
        return "A key is given twice."
    for config in resource.configs:
        if config.value is None and messages.get(config, "config_operation", 0) != _DELETE:
            return f"The key {config.name} has no value."
    resource_type, name = resource.resource_type, resource.resource_name
    if (
        resource_type == BROKER_LOGGER_RESOURCE
        or resource_type in _CONTROLLER_RESOURCES
        or (resource_type == BROKER_RESOURCE and not name)
    ):
        return None
    if resource_type != BROKER_RESOURCE:
        return f"The resource type {resource_type} is unknown."
    if whole(name) != node_id:
        return f"Broker {node_id} cannot change the configuration of broker {shown(name)}."
    fixed = sorted(_FIXED_KEYS.intersection(keys))
    return f"A running broker cannot change its {' and '.join(fixed)}." if fixed else None


def _broker_rejection(config: NodeConfig, resource: AlterConfigsResource, *, incremental: bool) -> str | None:
    """Return why the changed configuration has variables that cannot be resolved here, or why the log cleaner would
    reject it, or None. Only the broker can check this, because it has the static values, the files and the
    environment."""
    per_broker = bool(resource.resource_name)
    values: dict[str, str] = {}
    if incremental:
        values |= config.dynamic_broker if per_broker else config.dynamic_default
    for config_change in resource.configs:
        if config_change.value is None or messages.get(config_change, "config_operation", 0) == _DELETE:
            values.pop(config_change.name, None)
        else:
            values[config_change.name] = config_change.value
    try:
        check_resolved(values)
        check_cleaner_change(config, values, per_broker=per_broker)
    except ConfigError as error:
        return str(error)
    return None
