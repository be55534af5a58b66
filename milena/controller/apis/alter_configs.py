"""AlterConfigs (key 33), versions 0-2: replace all of a resource's dynamic configuration. KIP-133."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milena.controller.commands.config_requests import Altering, alter, failed
from milena.controller.commands.configs import replace
from milena.node.api import Reply, RequestContext
from milena.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from milena.protocol.apis import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponseFields

__all__ = ["failed", "handle"]


def handle(node: Altering, ctx: RequestContext, request: AlterConfigsRequest) -> Reply[AlterConfigsResponseFields]:
    return alter(node, request, _values, replace)


def _values(resource: AlterConfigsResource) -> dict[str, str | None]:
    missing = [config.name for config in resource.configs if config.value is None]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"These keys have no value: {', '.join(missing)}.")
    return {config.name: config.value for config in resource.configs}
