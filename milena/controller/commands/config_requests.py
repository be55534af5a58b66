"""What AlterConfigs and IncrementalAlterConfigs have in common: resources given once, and the answer's fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from milena.controller.commands.configs import Outcome, Resource
from milena.controller.state.result import Result
from milena.node.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from milena.protocol.errors import ErrorCode, KafkaError

KNOWN_TYPES: Final = frozenset(
    {TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE}
)

T = TypeVar("T")


def by_resource(request: Any, read: Callable[[Any], T]) -> tuple[dict[Resource, T], dict[Resource, Outcome]]:
    """The resources of a request with what ``read`` makes of each, and the refusals of those that cannot be."""
    wanted: dict[Resource, T] = {}
    refused: dict[Resource, Outcome] = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        if resource.resource_type not in KNOWN_TYPES:
            refused[key] = KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"The resource type {resource.resource_type} is unknown."
            )
        elif key in wanted or key in refused:
            wanted.pop(key, None)
            refused[key] = KafkaError(ErrorCode.INVALID_REQUEST, "This resource is given twice.")
        else:
            try:
                wanted[key] = read(resource)
            except KafkaError as error:
                refused[key] = error.kept()
    return wanted, refused


def without_records(result: Result[T]) -> Result[T]:
    """Of a request that only validates."""
    return Result((), result.response)


def responses(outcomes: Mapping[Resource, Outcome]) -> dict[str, Any]:
    return {
        "responses": [
            {
                "error_code": int(error.code) if error else 0,
                "error_message": error.text if error else None,
                "resource_type": kind,
                "resource_name": name,
            }
            for (kind, name), error in outcomes.items()
        ]
    }


def failed(request: Any, error: KafkaError) -> dict[str, Any]:
    return responses({(r.resource_type, r.resource_name): error for r in request.resources})
