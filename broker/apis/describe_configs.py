"""DescribeConfigs (key 32), versions 1-4: topics, this broker and its loggers, the dynamic defaults of all brokers.

Values with their sources and, if asked, synonyms and documentation. A broker tells of itself alone, as Kafka's does.
KIPs: 133, 226, 412 (loggers), 569 (documentation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from node.api import RequestContext
from node.config_views import ConfigView, all_results
from protocol import messages
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.server import Broker


def handle(node: Broker, ctx: RequestContext, request: Any) -> dict[str, Any]:
    return {"results": all_results([_describe(node, request, resource) for resource in request.resources])}


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
        error, message = failure.code, failure.message or ""
    return {
        "error_code": int(error),
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": configs,
    }
