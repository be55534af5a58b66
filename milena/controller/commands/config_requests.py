"""The common part of AlterConfigs and IncrementalAlterConfigs: resources by name, and the response."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from milena.controller.commands.configs import Outcome, Resource
from milena.controller.state.result import RECORDS_PER_STEP, Committing, Result
from milena.controller.state.state import ControllerState
from milena.node.api import Reply, RequestContext
from milena.node.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import MetadataRecord

if TYPE_CHECKING:
    from milena.protocol.apis import AlterConfigsRequest, AlterConfigsResponseFields

KNOWN_TYPES: Final = frozenset(
    {TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE}
)

T = TypeVar("T")


class Listening(Protocol):
    """Notified of changed configurations (``controller.background``)."""

    def configs_changed(self, records: Sequence[MetadataRecord]) -> None: ...


class Named(Protocol):
    """A config resource of either request."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sized: ...


R = TypeVar("R", bound=Named, covariant=True)


class Request(Protocol[R]):
    """The common fields of both requests."""

    @property
    def resources(self) -> Sequence[R]: ...
    @property
    def validate_only(self) -> bool: ...


class Altering(Committing, Protocol):
    """What both handlers use of their controller."""

    @property
    def background(self) -> Listening: ...


def by_resource(request: Request[R], read: Callable[[R], T]) -> tuple[dict[Resource, T], dict[Resource, Outcome]]:
    """Return what ``read`` makes of each resource, and an error for each resource that is invalid or repeated."""
    requested: dict[Resource, T] = {}
    refused: dict[Resource, Outcome] = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        if resource.resource_type not in KNOWN_TYPES:
            refused[key] = KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"The resource type {resource.resource_type} is unknown."
            )
        elif key in requested or key in refused:
            requested.pop(key, None)
            refused[key] = KafkaError(ErrorCode.INVALID_REQUEST, "The resource is in the request twice.")
        else:
            try:
                requested[key] = read(resource)
            except KafkaError as error:
                refused[key] = error.without_traceback()
    return requested, refused


def alter(
    node: Altering,
    request: Request[R],
    read: Callable[[R], T],
    decide: Callable[[ControllerState, dict[Resource, T]], Result[dict[Resource, Outcome]]],
) -> Reply[AlterConfigsResponseFields]:
    """Answer either request. ``read``: the changes of one resource; ``decide``: the records of all of them."""
    requested, refused = by_resource(request, read)
    decided: Sequence[MetadataRecord] = ()

    def decide_now() -> Result[dict[Resource, Outcome]]:
        nonlocal decided
        result = decide(node.state, requested)
        if request.validate_only:
            result = result.without_records()
        decided = result.records
        return result

    def answer(outcomes: Mapping[Resource, Outcome]) -> AlterConfigsResponseFields:
        node.background.configs_changed(decided)
        return responses({**refused, **outcomes})

    if sum(1 + len(resource.configs) for resource in request.resources) > RECORDS_PER_STEP:
        return node.commit_in_steps(decide_now, answer)
    return node.commit(decide_now(), answer)


def responses(outcomes: Mapping[Resource, Outcome]) -> AlterConfigsResponseFields:
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


def failed(ctx: RequestContext, request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponseFields:
    return responses({(r.resource_type, r.resource_name): error for r in request.resources})
