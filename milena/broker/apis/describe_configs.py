"""DescribeConfigs (key 32), versions 1-4: topics, this broker and its loggers, the dynamic defaults of all brokers.

Values with their sources and, if asked, synonyms and documentation. A broker tells of itself alone, as Kafka's does.
KIPs: 133, 226, 412 (loggers), 569 (documentation).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from milena.node.api import RequestContext
from milena.node.metadata.config_answers import describe_configs

if TYPE_CHECKING:
    from milena.config.node_config import NodeConfig
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import DescribeConfigsRequest, DescribeConfigsResponseFields
    from milena.runtime.context import Runtime


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def runtime(self) -> Runtime: ...


def handle(
    node: Needs, ctx: RequestContext, request: DescribeConfigsRequest
) -> Awaitable[DescribeConfigsResponseFields]:
    return describe_configs(node.runtime.clock, lambda: node.config, lambda: node.image, request)
