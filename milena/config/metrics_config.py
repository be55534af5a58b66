"""Client metrics subscriptions (KIP-714): stored and described. No metrics are requested from clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from milena.config.definitions import Key, Mode
from milena.config.validators import Names
from milena.config.values import ConfigError, Type

SHORTEST_MS: Final = 100
LONGEST_MS: Final = 3_600_000
INTERVAL: Final = "interval.ms"
MATCH: Final = "match"
MATCHED: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
METRICS_KEYS: Final[Mapping[str, Key]] = {
    key.name: key
    for key in (
        Key("metrics", Type.LIST, (), Names(may_be_empty=True), Mode.CLUSTER_WIDE, "Prefixes of metric names."),
        Key(INTERVAL, Type.INT, 300_000, None, Mode.CLUSTER_WIDE, "Time between two pushes of a client."),
        Key(MATCH, Type.LIST, (), Names(may_be_empty=True), Mode.CLUSTER_WIDE, "Which clients, as NAME=PATTERN."),
    )
}
_OF_JAVA_ALONE: Final = re.compile(r"\\[pPQEhHRXkzG]|[*+?}]\+|&&|\(\?<[a-zA-Z]")


class BadSubscription(ValueError):
    """An invalid request (INVALID_REQUEST), where ConfigError is INVALID_CONFIG."""


def validate_metrics_config(values: Mapping[str, str]) -> None:
    """Check the values of a subscription. Raises BadSubscription, ConfigError."""
    unknown = [name for name in values if name not in METRICS_KEYS]
    if unknown:
        raise BadSubscription(f"Unknown client metrics configuration: {unknown[0]}")
    parsed = {name: METRICS_KEYS[name].parse(text) for name, text in values.items()}
    interval = parsed.get(INTERVAL)
    if isinstance(interval, int) and not SHORTEST_MS <= interval <= LONGEST_MS:
        raise BadSubscription(f"{INTERVAL} must be between {SHORTEST_MS} and {LONGEST_MS}, not {interval}")
    patterns = parsed.get(MATCH, ())
    assert isinstance(patterns, tuple)
    for pattern in patterns:
        _check_pattern(pattern)


def _check_pattern(text: str) -> None:
    """Check NAME=PATTERN pairs. Like Java, ignore empty trailing pieces. Patterns with syntax that only Java's regular
    expressions have are accepted unchecked."""
    pieces = text.split("=")
    while pieces and not pieces[-1]:
        pieces.pop()
    if len(pieces) != 2 or pieces[0].strip() not in MATCHED:
        raise ConfigError(f"Illegal client matching pattern: {text}")
    pattern = pieces[1].strip()
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        if not _OF_JAVA_ALONE.search(pattern):
            raise ConfigError(f"Illegal client matching pattern: {text}") from None
