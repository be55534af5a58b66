"""AlterConfigs (key 33), versions 0-2: checked here, answered by the controller."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from milena.broker.controller_link import config_changes
from milena.node.api import RequestContext
from milena.protocol.errors import KafkaError

if TYPE_CHECKING:
    from milena.broker.server import Broker


def handle(node: Broker, ctx: RequestContext, request: Any) -> Awaitable[dict[str, Any] | None]:
    return config_changes.alter(node, ctx, request)


def failed(ctx: RequestContext, request: Any, error: KafkaError) -> dict[str, Any]:
    return {"responses": [config_changes.failed(resource, error) for resource in request.resources]}
