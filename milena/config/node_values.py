"""The values of one node's configuration, and what is derived from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Self, TypeVar

from milena.config.broker_config import keys_in, parse_settings, require
from milena.config.definitions import Mode
from milena.config.keys import Keys
from milena.config.listeners import Endpoint, Listeners, ip_overrides
from milena.config.protection import has_authorizer
from milena.config.providers import resolve_dynamic
from milena.config.sources import Settings
from milena.config.validators import split_address
from milena.config.values import ConfigError, Value

T = TypeVar("T")
BROKER: Final = "broker"
CONTROLLER: Final = "controller"


class NodeValues:
    """Values by Kafka's names. Immutable: ``with_dynamic`` returns a new object.

    ``NodeConfig`` adds the checks across keys.
    """

    def __init__(self, settings: Settings) -> None:
        """``settings`` have been resolved. Raises ConfigError, which names source and key, for values that Kafka would
        reject."""
        self.originals: Mapping[str, str] = {name: setting.value for name, setting in settings.items()}
        """What was set, as text with the values of variables, including keys without effect."""
        self.keys = keys_in(settings)
        """The keys of the release that the node behaves like."""
        parsed = parse_settings(settings)
        static = parsed.values
        require(static, settings)
        self.unknown = parsed.unknown
        """The settings with unknown keys."""
        self.warnings = parsed.warnings
        """Warnings to be logged once."""
        self.unprotected = parsed.security if has_authorizer(settings) else None
        """The one of them that must be seen at any log level: a configured authorizer has no effect."""
        self.static: Mapping[str, Value] = static
        self.dynamic_broker: Mapping[str, str] = {}
        self.dynamic_default: Mapping[str, str] = {}
        self._values: dict[str, Value] = {**self.keys.defaults, **static}
        self.quorum_voters: dict[int, tuple[str, int]] = {
            int(voter.partition("@")[0]): _address(voter.partition("@")[2])
            for voter in self.get_list("controller.quorum.voters")
        }
        """Node id to (host, port)."""
        explicit_map = "listener.security.protocol.map" in static
        own = self.quorum_voters.get(self.get_int("node.id"))
        self._derive(Listeners.of(self._values, explicit_map=explicit_map, voter=own))

    def _derive(self, listeners: Listeners) -> None:
        self.node_id = self.get_int("node.id")
        self.roles = frozenset(self.get_list("process.roles"))
        self.is_broker = BROKER in self.roles
        self.is_controller = CONTROLLER in self.roles
        self.listeners: tuple[Endpoint, ...] = listeners.all
        """All listeners of this node, as broker and as controller."""
        self.broker_listeners: tuple[Endpoint, ...] = listeners.broker
        self.controller_listeners: tuple[Endpoint, ...] = listeners.controller
        self.advertised_listeners: tuple[Endpoint, ...] = listeners.advertised_broker
        """The advertised listeners of the broker. An empty host means the machine's host name."""
        self.advertised_controller_listeners: tuple[Endpoint, ...] = listeners.advertised_controller
        self.security_protocols: Mapping[str, str] = listeners.protocols
        self.inter_broker_listener: str = listeners.inter_broker
        self.controller_listener_names: tuple[str, ...] = listeners.controller_names
        self.quorum_bootstrap: list[tuple[str, int]] = [
            _address(entry) for entry in self.get_list("controller.quorum.bootstrap.servers")
        ]
        self.max_connections_overrides = ip_overrides(self.get_str("max.connections.per.ip.overrides"))
        """Maximum number of connections by host, in place of ``max.connections.per.ip``."""
        self.log_dirs = tuple(
            os.path.abspath(folder) for folder in self.get_list("log.dirs") or self.get_list("log.dir")
        )
        self.metadata_log_dir = os.path.abspath(self.get_str_or_none("metadata.log.dir") or self.log_dirs[0])

    @property
    def release(self) -> str:
        """The release of Kafka that the node behaves like."""
        return self.keys.release

    @property
    def controller_addresses(self) -> list[tuple[str, int]]:
        """Return the known controller addresses: (host, port) of the voters, then of the bootstrap controllers."""
        return list(dict.fromkeys([*self.quorum_voters.values(), *self.quorum_bootstrap]))

    def get(self, key: str) -> Value:
        """Return the value of a supported key: dynamic, else static, else Kafka's default. Raises KeyError for others.

        The methods below also raise TypeError if the value is of another type.
        """
        return self._values[key]

    def get_int(self, key: str) -> int:
        """The value of a key of type INT, LONG or SHORT."""
        return self._of_type(key, int)

    def get_int_or_none(self, key: str) -> int | None:
        """The value of such a key that has no default; None if it is not set."""
        return None if self._values[key] is None else self.get_int(key)

    def get_float(self, key: str) -> float:
        """The value of a key of type DOUBLE."""
        return self._of_type(key, float)

    def get_bool(self, key: str) -> bool:
        return self._of_type(key, bool)

    def get_str(self, key: str) -> str:
        """The value of a key of type STRING, CLASS or PASSWORD."""
        return self._of_type(key, str)

    def get_str_or_none(self, key: str) -> str | None:
        """The value of such a key that has no default; None if it is not set."""
        return None if self._values[key] is None else self.get_str(key)

    def get_list(self, key: str) -> tuple[str, ...]:
        """The value of a key of type LIST; empty if it is not set."""
        return () if self._values[key] is None else self._of_type(key, tuple)

    def _of_type(self, key: str, kind: type[T]) -> T:
        value = self._values[key]
        if not isinstance(value, kind):
            raise TypeError(f"{key} is {value!r}, not a {kind.__name__}")
        return value

    def under(self, prefix: str) -> dict[str, str]:
        """Return the settings whose keys begin with ``prefix``, without the prefix: the configuration of a plug-in."""
        return {name.removeprefix(prefix): text for name, text in self.originals.items() if name.startswith(prefix)}

    def with_dynamic(self, *, default: Mapping[str, str], broker: Mapping[str, str]) -> Self:
        """Return this configuration with the cluster-wide (``default``) and this broker's own dynamic values applied.

        Invalid values are ignored, as in Kafka; the controller has checked them before.
        """
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed.dynamic_default = dict(default)
        changed.dynamic_broker = dict(broker)
        changed._values = {
            **self.keys.defaults,
            **self.static,
            **_usable(self.keys, resolve_dynamic(default)),
            **_usable(self.keys, resolve_dynamic(broker)),
        }
        return changed


def _usable(keys: Keys, overrides: Mapping[str, str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        key = keys.dynamic.get(name)
        if key is None or key.mode is Mode.READ_ONLY:
            continue
        try:
            values[name] = key.parse(text)
        except ConfigError:
            continue
    return values


def _address(text: str) -> tuple[str, int]:
    address = split_address(text)
    assert address is not None, text
    return address
