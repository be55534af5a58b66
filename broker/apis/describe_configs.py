"""DescribeConfigs (key 32), versions 1-4: topics, this broker and its loggers, the dynamic defaults of all brokers.

Values with their sources and, if asked, synonyms and documentation. A broker tells of itself alone, as Kafka's does.
KIPs: 133, 226, 412 (loggers), 569 (documentation).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from node.api import RequestContext
from node.config_views import ConfigView, all_results
from node.repeats import Repeats
from node.slices import in_slices
from protocol import messages
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.server import Broker

SLICE: Final = 20
"""Resources that are described at one go: each takes up to a millisecond."""
LEAST: Final = 30
"""What a resource counts for, at least, where it is named again: its values are made before some are chosen."""


def handle(node: Broker, ctx: RequestContext, request: Any) -> Awaitable[dict[str, Any]]:
    return _answer(node, request)


async def _answer(node: Broker, request: Any) -> dict[str, Any]:
    """Raises KafkaError INVALID_REQUEST where the same resources are named over and over."""
    repeats = Repeats()

    def describe(resource: Any) -> dict[str, Any]:
        told = _describe(node, request, resource)
        repeats.note((resource.resource_type, resource.resource_name), max(LEAST, len(told["configs"])))
        return told

    return {"results": all_results(await in_slices(node.runtime.clock, request.resources, describe, SLICE))}


def _describe(node: Broker, request: Any, resource: Any) -> dict[str, Any]:
    view = ConfigView(
        node.config,
        node.image,
        frozenset(resource.configuration_keys) if resource.configuration_keys else None,
        synonyms=bool(messages.get(request, "include_synonyms", False)),
        documentation=bool(messages.get(request, "include_documentation", False)),
    )
    error, message, configs = ErrorCode.NONE, "", list[dict[str, Any]]()
    try:
        configs = view.describe(resource.resource_type, resource.resource_name)
    except KafkaError as failure:
        error, message = failure.code, failure.text
    return {
        "error_code": int(error),
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": configs,
    }
