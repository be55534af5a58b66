"""AlterConfigs and IncrementalAlterConfigs: what the broker refuses before the controller hears of it (KAFKA-13749).

A broker's own configuration is changed through that broker alone, and the levels of its loggers end with it. Resources
that pass are sent on together; the answer has all in the order of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeGuard

from milena.broker.controller_link.forwarding import Forwarding, ask_controller, forward
from milena.broker.metadata.log_levels import change_levels
from milena.config.cleaner_rules import check_cleaner_change
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

_OF_THE_CONTROLLER: Final = frozenset({TOPIC_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE})
_BOUND: Final = frozenset({"listeners", "advertised.listeners"})
_DELETE: Final = 1


class Altering(Forwarding, Protocol):
    """What a change of configurations needs of the broker."""

    @property
    def node_id(self) -> NodeId: ...


async def handle(
    node: Altering, ctx: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponseFields | None:
    """Answer either of the two requests; None if the controller's answer has been passed on. Raises KafkaError if
    the controller gives none."""
    resources = [(resource.resource_type, resource.resource_name) for resource in request.resources]
    twice = repeated_in(resources)
    own: dict[int, KafkaError | None] = {}
    for index, resource in enumerate(request.resources):
        error = _refusal(node, ctx, resource, repeated=resources[index] in twice)
        if error is not None or resource.resource_type == BROKER_LOGGER_RESOURCE:
            own[index] = error or _change_levels(node, ctx, resource, validate_only=request.validate_only)
    if not own:
        await forward(node, ctx, request)
        return None
    rest = tuple(resource for index, resource in enumerate(request.resources) if index not in own)
    answered: dict[tuple[int, str], AlterConfigsResourceResponseFields] = {}
    if rest:
        body = await ask_controller(node, ctx, messages.replaced(request, resources=rest))
        answer: AlterConfigsResponse = messages.decode_response(ctx.header.api_key, ctx.version, body)
        answered = {
            (outcome.resource_type, outcome.resource_name): {
                "resource_type": outcome.resource_type,
                "resource_name": outcome.resource_name,
                "error_code": outcome.error_code,
                "error_message": outcome.error_message,
            }
            for outcome in answer.responses
        }
    return {
        "responses": [
            _outcome(request.resources[index], own[index]) if index in own else answered[resource]
            for index, resource in enumerate(resources)
        ]
    }


def failed(ctx: RequestContext, request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponseFields:
    return {"responses": [_outcome(resource, error) for resource in request.resources]}


def _outcome(resource: AlterConfigsResource, error: KafkaError | None) -> AlterConfigsResourceResponseFields:
    return {
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "error_code": int(error.code) if error else 0,
        "error_message": error.text if error else None,
    }


def _change_levels(
    node: Altering, ctx: RequestContext, resource: AlterConfigsResource, *, validate_only: bool
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


def _refusal(
    node: Altering, ctx: RequestContext, resource: AlterConfigsResource, *, repeated: bool
) -> KafkaError | None:
    problem = "This resource is given twice." if repeated else _problem(node.node_id, resource)
    if problem is None and resource.resource_type == BROKER_RESOURCE:
        problem = _problem_of_cleaner(node.config, resource, incremental=_is_incremental(resource, ctx))
    return KafkaError(ErrorCode.INVALID_REQUEST, problem) if problem else None


def _problem(node_id: int, resource: AlterConfigsResource) -> str | None:
    keys = [config.name for config in resource.configs]
    if len(set(keys)) < len(keys):
        return "A key is given twice."
    for config in resource.configs:
        if config.value is None and messages.get(config, "config_operation", 0) != _DELETE:
            return f"The key {config.name} has no value."
    kind, name = resource.resource_type, resource.resource_name
    if kind == BROKER_LOGGER_RESOURCE or kind in _OF_THE_CONTROLLER or (kind == BROKER_RESOURCE and not name):
        return None
    if kind != BROKER_RESOURCE:
        return f"The resource type {kind} is unknown."
    if whole(name) != node_id:
        return f"The configuration of broker {shown(name)} is not for broker {node_id} to change."
    bound = sorted(_BOUND.intersection(keys))
    return f"A running broker keeps its {' and '.join(bound)}." if bound else None


def _problem_of_cleaner(config: NodeConfig, resource: AlterConfigsResource, *, incremental: bool) -> str | None:
    """Of what the broker's configuration would be: only the broker knows which values it has now."""
    per_broker = bool(resource.resource_name)
    values: dict[str, str] = {}
    if incremental:
        values |= config.dynamic_broker if per_broker else config.dynamic_default
    for one in resource.configs:
        if one.value is None or messages.get(one, "config_operation", 0) == _DELETE:
            values.pop(one.name, None)
        else:
            values[one.name] = one.value
    try:
        check_cleaner_change(config, values, per_broker=per_broker)
    except ConfigError as error:
        return str(error)
    return None
