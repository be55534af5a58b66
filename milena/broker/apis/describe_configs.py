"""DescribeConfigs (key 32), versions 1-4: topics, this broker and its loggers, the dynamic defaults of all brokers.

Returns values with their sources and, if requested, synonyms and documentation. A broker describes only itself, as in
Kafka. KIPs: 133, 226, 412 (loggers), 569 (documentation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.node.api import RequestContext
from milena.node.metadata.config_answers import describe_configs
from milena.protocol.cooperative import Cooperative

if TYPE_CHECKING:
    from milena.config.node_config import NodeConfig
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import DescribeConfigsRequest, DescribeConfigsResponseFields


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def image(self) -> MetadataImage: ...


def handle(
    node: Needs, ctx: RequestContext, request: DescribeConfigsRequest
) -> Cooperative[DescribeConfigsResponseFields]:
    return describe_configs(lambda: node.config, lambda: node.image, request)
