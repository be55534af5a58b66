"""IncrementalAlterConfigs (key 44), versions 0-1: set, delete, append to and subtract from single keys.

Topics, brokers, the defaults of all brokers, groups and client metrics. KIPs: 339, 226, 714, 848.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

from milena.controller.commands import config_requests
from milena.controller.commands.configs import Change, Op, alter_incrementally
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from milena.controller.server import Controller


def handle(node: Controller, ctx: RequestContext, request: Any) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
    wanted, refused = config_requests.by_resource(request, _changes)
    result = alter_incrementally(node.state, wanted)
    if request.validate_only:
        result = config_requests.without_records(result)
    answer = node.commit(result, lambda outcomes: config_requests.responses({**refused, **outcomes}))
    node.background.configs_changed(result.records)
    return answer


def failed(ctx: RequestContext, request: Any, error: KafkaError) -> dict[str, Any]:
    return config_requests.failed(request, error)


def _changes(resource: Any) -> dict[str, Change]:
    changes: dict[str, Change] = {}
    for config in resource.configs:
        try:
            op = Op(config.config_operation)
        except ValueError:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"The operation {config.config_operation} on {config.name} is unknown."
            ) from None
        if config.name in changes:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The key {config.name} is given twice.")
        changes[config.name] = Change(op, config.value)
    return changes
