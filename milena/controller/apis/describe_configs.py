"""DescribeConfigs (key 32), versions 1-4: topics, this controller, the cluster-wide broker defaults. KIPs: 133, 919."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.node.api import RequestContext
from milena.node.metadata.config_answers import describe_configs
from milena.protocol.cooperative import Cooperative

if TYPE_CHECKING:
    from milena.controller.state.state import ControllerState
    from milena.protocol.apis import DescribeConfigsRequest, DescribeConfigsResponseFields


class Needs(Protocol):
    """What this handler uses of its controller."""

    @property
    def state(self) -> ControllerState: ...


def handle(
    node: Needs, ctx: RequestContext, request: DescribeConfigsRequest
) -> Cooperative[DescribeConfigsResponseFields]:
    return describe_configs(lambda: node.state.config, lambda: node.state.image, request)
