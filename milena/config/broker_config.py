"""All keys of brokers and controllers, and the other keys that a configuration may contain."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from milena.config.definitions import REQUIRED, unknown
from milena.config.keys import DYNAMIC_KEYS, KEYS, REMOVED, REMOVED_FROM_MILENA, UNSUPPORTED
from milena.config.sources import Settings
from milena.config.values import ConfigError, Value

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
}
"""Keys that take effect if the key before them is not set."""

FREE_PREFIXES: Final = (
    "rsm.config.",
    "rlmm.config.",
    "listener.name.",
    "config.providers.",
    "metrics.context.",
    "metrics.jmx.",
)
"""Prefixes of the keys of plug-ins and of single listeners."""
PLUG_IN_PREFIXES: Final = ("remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix")
"""Keys whose value is the prefix of the keys of a plug-in."""

ROLE_SYNONYMS: Final = (("node.id", "broker.id"), ("broker.id", "node.id"))


@cache
def defaults() -> dict[str, Value]:
    return {key.name: key.default for key in DYNAMIC_KEYS.values() if key.default is not REQUIRED}


def parse_settings(settings: Settings) -> tuple[dict[str, Value], list[str]]:
    """Return the typed values of the settings, and warnings about settings without effect.

    Raises ConfigError, naming the source, for unknown keys and invalid values.
    """
    values: dict[str, Value] = {}
    warnings: list[str] = []
    free = tuple(settings[name].value.strip() for name in PLUG_IN_PREFIXES if name in settings)
    for name, setting in settings.items():
        key = KEYS.get(name)
        if key is None:
            if not free or not name.startswith(free):
                warnings += _without_effect(name, setting.source)
            continue
        try:
            values[name] = key.parse(setting.value)
        except ConfigError as error:
            raise ConfigError(f"{setting.source}: {error}") from None
    for name, other in ROLE_SYNONYMS:
        if name not in values and other in values:
            values[name] = values[other]
    return values, warnings


def require(values: Mapping[str, Value]) -> None:
    """Raises ConfigError if a key without default is missing."""
    for key in KEYS.values():
        if key.default is REQUIRED and key.name not in values:
            raise ConfigError(f'Missing required configuration "{key.name}" which has no default value.')


def _without_effect(name: str, source: str) -> list[str]:
    if name.startswith(FREE_PREFIXES):
        return []
    if name in UNSUPPORTED:
        return [f"{source}: {name} is not supported yet and has no effect"]
    if name in REMOVED_FROM_MILENA:
        return [f"{source}: {name} was removed from Milena and has no effect"]
    if name in REMOVED:
        return [f"{source}: {name} was removed from Kafka and has no effect"]
    raise unknown(name, source, [*KEYS, *UNSUPPORTED])
