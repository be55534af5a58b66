"""DescribeConfigs (key 32), versions 1-4: topics, this controller, the cluster-wide broker defaults. KIPs: 133, 919."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from milena.node.api import RequestContext
from milena.node.metadata.config_answers import describe_configs

if TYPE_CHECKING:
    from milena.controller.state.state import ControllerState
    from milena.protocol.apis import DescribeConfigsRequest, DescribeConfigsResponseFields
    from milena.runtime.context import Runtime


class Needs(Protocol):
    """What this handler uses of its controller."""

    @property
    def runtime(self) -> Runtime: ...
    @property
    def state(self) -> ControllerState: ...


def handle(
    node: Needs, ctx: RequestContext, request: DescribeConfigsRequest
) -> Awaitable[DescribeConfigsResponseFields]:
    return describe_configs(node.runtime.clock, lambda: node.state.config, lambda: node.state.image, request)
