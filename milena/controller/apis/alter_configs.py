"""AlterConfigs (key 33), versions 0-2: replace all of a resource's dynamic configuration. KIP-133."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from milena.controller.commands.config_requests import Altering, alter, failed
from milena.controller.commands.configs import replace
from milena.node.api import Fields, RequestContext
from milena.protocol.errors import ErrorCode, KafkaError

__all__ = ["failed", "handle"]


def handle(node: Altering, ctx: RequestContext, request: Any) -> Fields | Awaitable[Fields]:
    return alter(node, request, _values, replace)


def _values(resource: Any) -> dict[str, str | None]:
    missing = [config.name for config in resource.configs if config.value is None]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"These keys have no value: {', '.join(missing)}.")
    return {config.name: config.value for config in resource.configs}
