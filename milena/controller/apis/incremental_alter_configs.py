"""IncrementalAlterConfigs (key 44), versions 0-1: SET, DELETE, APPEND and SUBTRACT for single keys.

Topics, brokers, the cluster-wide broker defaults, groups and client metrics. KIPs: 339, 226, 714, 848.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milena.controller.commands.config_requests import Altering, alter, failed
from milena.controller.commands.configs import Change, Op, alter_incrementally
from milena.node.api import Reply, RequestContext
from milena.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from milena.protocol.apis import (
        IncrementalAlterConfigsAlterConfigsResource,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponseFields,
    )

__all__ = ["failed", "handle"]


def handle(
    node: Altering, ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> Reply[IncrementalAlterConfigsResponseFields]:
    return alter(node, request, _changes, alter_incrementally)


def _changes(resource: IncrementalAlterConfigsAlterConfigsResource) -> dict[str, Change]:
    changes: dict[str, Change] = {}
    for config in resource.configs:
        try:
            op = Op(config.config_operation)
        except ValueError:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"The operation {config.config_operation} on {config.name} is unknown."
            ) from None
        if config.name in changes:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The key {config.name} is in the request twice.")
        changes[config.name] = Change(op, config.value)
    return changes
