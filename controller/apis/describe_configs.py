"""DescribeConfigs (key 32), versions 1-4: topics, this controller, the dynamic defaults of all. KIPs: 133, 919."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from node.api import RequestContext
from node.config_views import ConfigView, all_results
from protocol import messages
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from controller.server import Controller


def handle(node: Controller, ctx: RequestContext, request: Any) -> dict[str, Any]:
    return {"results": all_results([_describe(node, request, resource) for resource in request.resources])}


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
        answer |= {"error_code": int(error.code), "error_message": error.message or ""}
    return answer
