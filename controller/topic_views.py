"""A new topic's effective configuration, as CreateTopics v5 and later answer it (KIP-525)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from runtime.config.node_config import NodeConfig
from runtime.config.topic_config import BROKER_SYNONYMS, TOPIC_KEYS, effective_value
from runtime.config.values import render

TOPIC_SOURCE: Final = 1
BROKER_SOURCE: Final = 2
DEFAULT_BROKER_SOURCE: Final = 3
STATIC_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5

INTERNAL: Final = "internal."


def effective_configs(config: NodeConfig, overrides: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every key of a topic, sorted, in the fields of the response."""
    return [
        {
            "name": name,
            "value": overrides.get(name, render(effective_value(config, overrides, name))),
            "read_only": False,
            "config_source": _source(config, overrides, name),
            "is_sensitive": False,
        }
        for name in sorted(TOPIC_KEYS)
        if not name.startswith(INTERNAL)
    ]


def _source(config: NodeConfig, overrides: Mapping[str, str], name: str) -> int:
    if name in overrides:
        return TOPIC_SOURCE
    synonyms = [synonym for synonym, _ in BROKER_SYNONYMS.get(name, ())]
    layers = (
        (config.dynamic_broker, BROKER_SOURCE),
        (config.dynamic_default, DEFAULT_BROKER_SOURCE),
        (config.static, STATIC_SOURCE),
    )
    for values, source in layers:
        if any(synonym in values for synonym in synonyms):
            return source
    return DEFAULT_SOURCE
