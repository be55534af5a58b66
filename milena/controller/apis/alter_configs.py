"""AlterConfigs (key 33), versions 0-2: replace all of a resource's dynamic configuration. KIP-133."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

from milena.controller.commands import config_requests
from milena.controller.commands.configs import replace
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from milena.controller.server import Controller


def handle(node: Controller, ctx: RequestContext, request: Any) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
    wanted, refused = config_requests.by_resource(request, _values)
    result = replace(node.state, wanted)
    if request.validate_only:
        result = config_requests.without_records(result)
    answer = node.commit(result, lambda outcomes: config_requests.responses({**refused, **outcomes}))
    node.background.configs_changed(result.records)
    return answer


def failed(ctx: RequestContext, request: Any, error: KafkaError) -> dict[str, Any]:
    return config_requests.failed(request, error)


def _values(resource: Any) -> dict[str, str | None]:
    missing = [config.name for config in resource.configs if config.value is None]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"These keys have no value: {', '.join(missing)}.")
    return {config.name: config.value for config in resource.configs}
