"""The response to DescribeConfigs, which brokers and controllers build in the same way (KIPs 133, 226, 569)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from milena.config.node_config import NodeConfig
from milena.node.metadata.config_views import ConfigView, all_results
from milena.node.metadata.image import MetadataImage
from milena.node.serving.repeats import Repeats
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages

if TYPE_CHECKING:
    from milena.protocol.apis import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResourceResultFields,
        DescribeConfigsResponseFields,
        DescribeConfigsResultFields,
    )

RESOURCES_PER_YIELD: Final = 20
"""Resources that are described between two yields; one takes up to a millisecond."""
MIN_REPEAT_COST: Final = 30
"""The minimum cost, in elements, of a resource that is named again: all its values are built before some are
selected."""


def describe_configs(
    config: Callable[[], NodeConfig], image: Callable[[], MetadataImage], request: DescribeConfigsRequest
) -> Cooperative[DescribeConfigsResponseFields]:
    """Return the response's fields. Between resources the work yields; each is described from the current state.

    Raises KafkaError INVALID_REQUEST if the same resources are named too often.
    """
    repeats = Repeats()

    def describe(resource: DescribeConfigsResource) -> DescribeConfigsResultFields:
        result = _describe(config(), image(), request, resource)
        repeats.note((resource.resource_type, resource.resource_name), max(MIN_REPEAT_COST, len(result["configs"])))
        return result

    results = yield from YieldBudget(RESOURCES_PER_YIELD).apply(request.resources, describe)
    return {"results": all_results(results)}


def _describe(
    config: NodeConfig, image: MetadataImage, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResultFields:
    view = ConfigView(
        config,
        image,
        frozenset(resource.configuration_keys) if resource.configuration_keys else None,
        synonyms=bool(messages.get(request, "include_synonyms", False)),
        documentation=bool(messages.get(request, "include_documentation", False)),
    )
    error, message = ErrorCode.NONE, ""
    configs: list[DescribeConfigsResourceResultFields] = []
    try:
        configs = view.describe(resource.resource_type, resource.resource_name)
    except KafkaError as failure:
        error, message = failure.code, failure.text
    return {
        "error_code": int(error),
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": configs,
    }
