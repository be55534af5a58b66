"""All keys of brokers and controllers, and the other keys that a configuration may contain."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from milena.config.definitions import REQUIRED
from milena.config.keys import REMOVED, REMOVED_FROM_MILENA, Keys, keys_of, release_in
from milena.config.protection import security_keys, warning
from milena.config.providers import PLUG_IN_PREFIXES
from milena.config.sources import VARIABLE, Settings, variable_of
from milena.config.unknown_keys import UnknownKey, listed, unknown_key
from milena.config.values import ConfigError, Value
from milena.releases import NEWEST

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

ROLE_SYNONYMS: Final = (("node.id", "broker.id"), ("broker.id", "node.id"))


@dataclass(frozen=True, slots=True)
class Parsed:
    """What settings contain."""

    values: dict[str, Value]
    """The typed values of the supported keys."""
    unknown: tuple[UnknownKey, ...]
    unsupported: tuple[str, ...]
    """``SOURCE: KEY`` of the keys of Kafka that Milena does not support yet, except those of security."""
    security: str | None
    """The warning about keys of security."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """At most one warning about unknown keys, one about unsupported ones, and one about those of security."""
        found = []
        if self.unknown:
            found.append(f"unknown keys, without effect: {listed(self.unknown)}")
        if self.unsupported:
            found.append(f"keys not supported yet, without effect: {'; '.join(self.unsupported)}")
        if self.security:
            found.append(self.security)
        return tuple(found)


def parse_settings(settings: Settings) -> Parsed:
    """Return the typed values of the settings, and the keys without effect.

    Raises ConfigError, naming the source, for invalid values, and for unknown keys that were typed as arguments.
    """
    keys = keys_in(settings)
    unknown = unknown_keys(settings)
    refused = [key for key in unknown if settings[key.name].typed and key.name not in REMOVED | REMOVED_FROM_MILENA]
    if refused:
        raise ConfigError(refused[0].error)
    values: dict[str, Value] = {}
    for name, setting in settings.items():
        key = keys.broker.get(name)
        if key is not None:
            try:
                values[name] = key.parse(setting.value)
            except ConfigError as error:
                if setting.variables is not None:
                    kind = f"not a valid value of type {key.type.name}"
                    raise ConfigError(f"{setting.source}: {name}={setting.variables}: {kind}") from None
                raise ConfigError(f"{setting.source}: {error}") from None
    for name, other in ROLE_SYNONYMS:
        if name not in values and other in values:
            values[name] = values[other]
    others = keys.unsupported.difference(security_keys(settings))
    unsupported = tuple(f"{setting.source}: {name}" for name, setting in settings.items() if name in others)
    return Parsed(values, unknown, unsupported, warning(settings))


def keys_in(settings: Settings) -> Keys:
    """Return the keys of the release that the settings select."""
    return keys_of(release_in({name: setting.value for name, setting in settings.items()}))


def unknown_keys(settings: Settings) -> tuple[UnknownKey, ...]:
    """Return the settings with unknown keys. Keys with the prefixes of plug-ins and listeners are known."""
    free = (*FREE_PREFIXES, *(settings[name].value.strip() for name in PLUG_IN_PREFIXES if name in settings))
    prefixes = tuple(filter(None, free))
    keys = keys_in(settings)
    return tuple(
        unknown_key(name, setting, keys)
        for name, setting in settings.items()
        if name not in keys.broker and name not in keys.unsupported and not name.startswith(prefixes)
    )


def require(values: Mapping[str, Value], settings: Settings) -> None:
    """Raise ConfigError, which names what to set, if a key without default is missing."""
    missing = [
        key.name for key in keys_in(settings).broker.values() if key.default is REQUIRED and key.name not in values
    ]
    if not missing:
        return
    of_zookeeper = next((name for name in settings if name.startswith("zookeeper.")), None)
    of_bitnami = any(setting.source.startswith(f"{VARIABLE}KAFKA_CFG_") for setting in settings.values())
    by_variables = all(setting.source.startswith(VARIABLE) for setting in settings.values()) and bool(settings)
    example = _single_node(values.get("node.id", 1), {key: setting.value for key, setting in settings.items()})
    shown = {variable_of(key) if by_variables else key: value for key, value in example.items()}
    raise ConfigError(
        f'Missing required configuration "{missing[0]}" which has no default value. '
        + (f"{of_zookeeper} is set, but neither Kafka 4 nor Milena uses ZooKeeper. " if of_zookeeper else "")
        + ("KAFKA_CFG_* are variables of Bitnami's image; here they are KAFKA_*. " if of_bitnami else "")
        + f"A single node needs, for example, {' '.join(f'{key}={value}' for key, value in shown.items())}"
    )


def _single_node(node: object, given: Mapping[str, str]) -> dict[str, str]:
    """Return what to add to the given settings, or to change, so that they configure a broker with its controller."""
    name = given.get("controller.listener.names", "").split(",")[0].strip() or "CONTROLLER"
    listeners = given.get("listeners") or re.sub("://[^,:]*:", "://:", given.get("advertised.listeners", ""))
    entries = [entry.strip() for entry in (listeners or "PLAINTEXT://:9092").split(",")]
    taken = {entry.rpartition(":")[2] for entry in entries}
    port = next(text for text in map(str, range(9093, 9093 + len(entries) + 1)) if text not in taken)
    own = next((entry for entry in entries if entry.upper().startswith(f"{name.upper()}://")), None)
    if own is None:
        entries.append(f"{name}://:{port}")
    else:
        port = own.rpartition(":")[2]
    wanted = {
        "node.id": str(node),
        "process.roles": "broker,controller",
        "controller.listener.names": name,
        "listeners": ",".join(entries),
        "controller.quorum.voters": f"{node}@localhost:{port}",
    }
    protocols = given.get("listener.security.protocol.map", "")
    if not protocols and any(entry.upper().startswith(("SSL:", "SASL_")) for entry in entries):
        protocols = str(
            keys_of(NEWEST).defaults["listener.security.protocol.map"]
        )  # without it the controller's would be missing
    if protocols and f"{name.upper()}:" not in protocols.upper():
        wanted["listener.security.protocol.map"] = f"{name}:PLAINTEXT,{protocols}"
    changed = {key: value for key, value in wanted.items() if given.get(key, "").strip() != value}
    if given.get("broker.id", "").strip() == str(node):
        changed.pop("node.id", None)
    return changed
