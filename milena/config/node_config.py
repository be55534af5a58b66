"""The parsed configuration of one node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from milena.config.broker_config import DYNAMIC_KEYS, defaults, parse_settings, require
from milena.config.definitions import Mode
from milena.config.listeners import Endpoint, ip_overrides
from milena.config.sources import Settings, plain
from milena.config.validators import split_address
from milena.config.values import ConfigError, Value

BROKER: Final = "broker"
CONTROLLER: Final = "controller"


class NodeConfig:
    """Values under Kafka's names, and what follows from them. Never changes: ``with_dynamic`` makes another one."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigError, naming source and key, for a configuration that Kafka would refuse."""
        from milena.config.node_rules import Listeners, check

        self.originals: Mapping[str, str] = {name: setting.value for name, setting in settings.items()}
        """What was set, as text, with the keys that have no effect."""
        static, warnings = parse_settings(settings)
        require(static)
        self.warnings = tuple(warnings)
        """To be logged once."""
        self.static: Mapping[str, Value] = static
        self.dynamic_broker: Mapping[str, str] = {}
        self.dynamic_default: Mapping[str, str] = {}
        self._values: dict[str, Value] = defaults() | static
        self._derive(Listeners.of(self._values, explicit_map="listener.security.protocol.map" in static))
        check(self)

    @classmethod
    def of(cls, **values: object) -> NodeConfig:
        """For tests: keys with ``_`` for ``.``, over the least that a broker needs."""
        least = {
            "node_id": 1,
            "process_roles": "broker",
            "controller_listener_names": "CONTROLLER",
            "controller_quorum_voters": "1000@localhost:9093",
            "listeners": "PLAINTEXT://localhost:9092",
        }
        return cls(plain({name.replace("_", "."): str(value) for name, value in (least | values).items()}))

    def _derive(self, listeners: Any) -> None:
        self.node_id: int = self.get("node.id")
        self.roles: frozenset[str] = frozenset(self.get("process.roles"))
        self.is_broker = BROKER in self.roles
        self.is_controller = CONTROLLER in self.roles
        self.listeners: tuple[Endpoint, ...] = listeners.all
        """All that this node listens on, brokers' and controllers'."""
        self.broker_listeners: tuple[Endpoint, ...] = listeners.broker
        self.controller_listeners: tuple[Endpoint, ...] = listeners.controller
        self.advertised_listeners: tuple[Endpoint, ...] = listeners.advertised_broker
        """A broker's. An empty host stands for the machine's own name."""
        self.advertised_controller_listeners: tuple[Endpoint, ...] = listeners.advertised_controller
        self.security_protocols: Mapping[str, str] = listeners.protocols
        self.inter_broker_listener: str = listeners.inter_broker
        self.controller_listener_names: tuple[str, ...] = listeners.controller_names
        self.quorum_voters: dict[int, tuple[str, int]] = {
            int(voter.partition("@")[0]): _address(voter.partition("@")[2])
            for voter in self.get("controller.quorum.voters")
        }
        """Node id to (host, port)."""
        self.quorum_bootstrap: list[tuple[str, int]] = [
            _address(entry) for entry in self.get("controller.quorum.bootstrap.servers")
        ]
        self.max_connections_overrides = ip_overrides(self.get("max.connections.per.ip.overrides"))
        """Host to its most connections, instead of ``max.connections.per.ip``."""
        self.log_dirs = tuple(os.path.abspath(folder) for folder in self.get("log.dirs") or self.get("log.dir"))
        self.metadata_log_dir = os.path.abspath(self.get("metadata.log.dir") or self.log_dirs[0])

    @property
    def controller_addresses(self) -> list[tuple[str, int]]:
        """Where controllers may be: (host, port) of the voters, then the bootstrap servers of the quorum."""
        return list(dict.fromkeys([*self.quorum_voters.values(), *self.quorum_bootstrap]))

    def get(self, key: str) -> Any:
        """The value of a supported key: dynamic, else as set, else Kafka's default. Raises KeyError for others."""
        return self._values[key]

    def under(self, prefix: str) -> dict[str, str]:
        """What was set under keys that begin with ``prefix``, without it: the configuration of a plug-in."""
        return {name.removeprefix(prefix): text for name, text in self.originals.items() if name.startswith(prefix)}

    def with_dynamic(self, *, default: Mapping[str, str], broker: Mapping[str, str]) -> NodeConfig:
        """This configuration under the cluster-wide (``default``) and this broker's own dynamic ones.

        What cannot be used is left out, as Kafka does; the controller has checked it before.
        """
        changed = object.__new__(NodeConfig)
        changed.__dict__.update(self.__dict__)
        changed.dynamic_default = dict(default)
        changed.dynamic_broker = dict(broker)
        changed._values = defaults() | dict(self.static) | _usable(default) | _usable(broker)
        return changed


def check_dynamic(overrides: Mapping[str, str], *, per_broker: bool) -> None:
    """Whether a broker's dynamic configuration may hold these values. Raises ConfigError with Kafka's text.

    ``per_broker`` is False for the defaults of all brokers.
    """
    keys = {name: DYNAMIC_KEYS[name] for name in overrides if name in DYNAMIC_KEYS}
    fixed = sorted(name for name, key in keys.items() if key.mode is Mode.READ_ONLY)
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    single = sorted(name for name, key in keys.items() if key.mode is Mode.PER_BROKER)
    if single and not per_broker:
        raise ConfigError(f"Cannot update these configs at default cluster level: [{', '.join(single)}]")
    for name, key in keys.items():
        key.parse(overrides[name])


def _usable(overrides: Mapping[str, str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        key = DYNAMIC_KEYS.get(name)
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
