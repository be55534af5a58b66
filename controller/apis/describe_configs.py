"""DescribeConfigs (key 32), versions 1-4: topics, this controller, the dynamic defaults of all. KIPs: 133, 919."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from node.api import RequestContext
from node.config_views import ConfigView, all_results
from node.repeats import Repeats
from node.slices import in_slices
from protocol import messages
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from controller.server import Controller

SLICE: Final = 20
"""Resources that are described at one go: each takes up to a millisecond."""
LEAST: Final = 30
"""What a resource counts for, at least, where it is named again: its values are made before some are chosen."""


def handle(node: Controller, ctx: RequestContext, request: Any) -> Awaitable[dict[str, Any]]:
    return _answer(node, request)


async def _answer(node: Controller, request: Any) -> dict[str, Any]:
    """Raises KafkaError INVALID_REQUEST where the same resources are named over and over."""
    repeats = Repeats()

    def describe(resource: Any) -> dict[str, Any]:
        told = _describe(node, request, resource)
        repeats.note((resource.resource_type, resource.resource_name), max(LEAST, len(told["configs"])))
        return told

    return {"results": all_results(await in_slices(node.runtime.clock, request.resources, describe, SLICE))}


def _describe(node: Controller, request: Any, resource: Any) -> dict[str, Any]:
    view = ConfigView(
        node.state.config,
        node.state.image,
        frozenset(resource.configuration_keys) if resource.configuration_keys else None,
        synonyms=bool(messages.get(request, "include_synonyms", False)),
        documentation=bool(messages.get(request, "include_documentation", False)),
    )
    answer: dict[str, Any] = {
        "error_code": 0,
        "error_message": "",
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [],
    }
    try:
        answer["configs"] = view.describe(resource.resource_type, resource.resource_name)
    except KafkaError as error:
        answer |= {"error_code": int(error.code), "error_message": error.text}
    return answer
