"""DescribeConfigs (key 32), versions 1-4: topics, this broker and its loggers, the dynamic defaults of all brokers.

Values with their sources and, if asked, synonyms and documentation. A broker tells of itself alone, as Kafka's does.
KIPs: 133, 226, 412 (loggers), 569 (documentation).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from milena.node.api import RequestContext
from milena.node.metadata.config_answers import describe_configs

if TYPE_CHECKING:
    from milena.broker.server import Broker


def handle(node: Broker, ctx: RequestContext, request: Any) -> Awaitable[dict[str, Any]]:
    return describe_configs(node.runtime.clock, lambda: node.config, lambda: node.image, request)
