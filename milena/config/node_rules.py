"""What must agree between the keys of one node: Kafka's rules, in its order and with its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from milena.config.listeners import Endpoint, check_distinct, parse_endpoints, parse_protocol_map
from milena.config.values import ConfigError, Value

if TYPE_CHECKING:
    from milena.config.node_config import NodeConfig

NAMES_KEY = "controller.listener.names"
MAP_KEY = "listener.security.protocol.map"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True)
class Listeners:
    """All addresses of a node, parsed and sorted by who is served."""

    all: tuple[Endpoint, ...]
    broker: tuple[Endpoint, ...]
    controller: tuple[Endpoint, ...]
    advertised_broker: tuple[Endpoint, ...]
    advertised_controller: tuple[Endpoint, ...]
    protocols: Mapping[str, str]
    inter_broker: str
    controller_names: tuple[str, ...]

    @classmethod
    def of(cls, values: Mapping[str, Value], *, explicit_map: bool) -> Listeners:
        """Raises ConfigError."""
        names = tuple(name.upper() for name in _list(values[NAMES_KEY]))
        entries = _list(values["listeners"])
        protocols = parse_protocol_map(str(values[MAP_KEY]))
        if not explicit_map and not _uses_security(entries, names):
            protocols = dict.fromkeys(names, "PLAINTEXT") | protocols
        everything = parse_endpoints(entries, protocols)
        check_distinct(entries, everything)
        advertised = parse_endpoints(_list(values["advertised.listeners"]), protocols)
        own = {endpoint.name: endpoint for endpoint in advertised}
        controller = tuple(endpoint for endpoint in everything if endpoint.name in names)
        for name in names:
            if name not in protocols:
                raise ConfigError(
                    f"Controller listener with name {name} defined in {NAMES_KEY} not found in {MAP_KEY}  (an explicit "
                    f"security mapping for each controller listener is required if {MAP_KEY} is non-empty, "
                    "or if there are security protocols other than PLAINTEXT in use)"
                )
        return cls(
            all=everything,
            broker=tuple(endpoint for endpoint in everything if endpoint.name not in names),
            controller=controller,
            advertised_broker=tuple(e for e in advertised or everything if e.name not in names),
            advertised_controller=tuple(own.get(e.name, e) for e in controller),
            protocols=protocols,
            inter_broker=_inter_broker(values, protocols),
            controller_names=names,
        )


def _list(value: Value) -> tuple[str, ...]:
    assert value is None or isinstance(value, tuple)
    return value or ()


def _uses_security(entries: tuple[str, ...], names: tuple[str, ...]) -> bool:
    used = {entry.partition("://")[0].upper() for entry in entries} | set(names)
    return bool(used & {"SSL", "SASL_SSL", "SASL_PLAINTEXT"})


def _inter_broker(values: Mapping[str, Value], protocols: Mapping[str, str]) -> str:
    name = values["inter.broker.listener.name"]
    if name is None:
        return str(values["security.inter.broker.protocol"])
    if str(name).upper() not in protocols:
        raise ConfigError(f"Listener with name {name} defined in inter.broker.listener.name not found in {MAP_KEY}.")
    return str(name).upper()


def check(config: NodeConfig) -> None:
    """Raises ConfigError for the first rule that is broken."""
    get = config.get
    if "inter.broker.listener.name" in config.static and "security.inter.broker.protocol" in config.static:
        raise ConfigError("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
    if get("broker.id") >= 0 and get("broker.id") != config.node_id:
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.")
    _check_times(get)
    _check_replication(get)
    _check_roles(config)
    _check_addresses(config)
    _check_limits(get)
    if get("remote.log.storage.system.enable"):
        _check_tier(config)


def _check_tier(config: NodeConfig) -> None:
    """What topics have by default must be possible for one that is tiered."""
    from milena.config.tiered_rules import check_local_retention
    from milena.config.topic_config import broker_value

    keys = ("retention.bytes", "local.retention.bytes", "retention.ms", "local.retention.ms")
    check_local_retention({name: broker_value(config, name) for name in keys})


def _check_times(get: Any) -> None:
    if get("log.roll.ms") is not None and get("log.roll.ms") < 1:
        raise ConfigError("log.roll.ms must be greater than or equal to 1")
    if get("log.roll.jitter.ms") is not None and get("log.roll.jitter.ms") < 0:
        raise ConfigError("log.roll.jitter.ms must be greater than or equal to 0")
    given = (get(f"log.retention.{unit}") for unit in ("ms", "minutes", "hours"))
    if next(value for value in given if value is not None) == 0:
        raise ConfigError("log.retention.ms must be unlimited (-1) or, greater than or equal to 1")


def _check_replication(get: Any) -> None:
    if get("log.cleaner.dedupe.buffer.size") < get("log.cleaner.threads") * 1024 * 1024:
        raise ConfigError("log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
    if get("replica.fetch.wait.max.ms") > get("replica.socket.timeout.ms"):
        raise ConfigError(
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms "
            "to prevent unnecessary socket timeouts"
        )
    selector = get("replica.selector.class")
    if selector not in (None, RACK_AWARE_SELECTOR):
        raise ConfigError(
            f"Invalid value {selector} for configuration replica.selector.class: only {RACK_AWARE_SELECTOR} is built in"
        )
    if get("replica.fetch.wait.max.ms") > get("replica.lag.time.max.ms"):
        raise ConfigError(
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms "
            "to prevent frequent changes in ISR"
        )


def _check_roles(config: NodeConfig) -> None:
    voters = config.quorum_voters
    if not voters and not config.quorum_bootstrap:
        raise ConfigError(
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
            "controllers or controller.quorum.voters must contain a parseable set of controllers."
        )
    shown = f"controller.quorum.voters=Set({', '.join(map(str, voters))})"
    if config.is_controller:
        if voters and config.node_id not in voters:
            raise ConfigError(
                f"If process.roles contains the 'controller' role, the node id {config.node_id} "
                f"must be included in the set of voters {shown}"
            )
        if not config.is_broker and config.broker_listeners:
            raise ConfigError(
                f"The listeners config must only contain KRaft controller listeners from {NAMES_KEY} "
                "when process.roles=controller"
            )
        if len(config.controller_listeners) < len(config.controller_listener_names):
            raise ConfigError(
                f"{NAMES_KEY} must only contain values appearing in the 'listeners' configuration "
                "when running the KRaft controller role"
            )
        return
    if config.node_id in voters:
        raise ConfigError(
            f"If process.roles contains just the 'broker' role, the node id {config.node_id} "
            f"must not be included in the set of voters {shown}"
        )
    if config.controller_listeners:
        raise ConfigError(
            f"{NAMES_KEY} must not contain a value appearing in the 'listeners' configuration "
            "when running KRaft with just the broker role"
        )
    if config.get("controller.quorum.auto.join.enable"):
        raise ConfigError(
            "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role."
        )


def _check_addresses(config: NodeConfig) -> None:
    advertised = config.advertised_listeners
    if any(endpoint.host == "0.0.0.0" for endpoint in (*advertised, *config.advertised_controller_listeners)):
        raise ConfigError(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
        )
    known = {endpoint.name for endpoint in config.listeners} | set(config.controller_listener_names)
    for name in config.get("early.start.listeners") or ():
        if name not in known:
            raise ConfigError(
                f"early.start.listeners contains listener {name}, "
                "but this is not contained in listeners or controller.listener.names"
            )
    if not config.is_broker:
        return
    names = [endpoint.name for endpoint in advertised]
    if config.inter_broker_listener not in names:
        raise ConfigError(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            f"The valid options based on currently configured listeners are {','.join(names)}"
        )
    own = [endpoint.name for endpoint in config.broker_listeners]
    if not set(names) <= set(own):
        raise ConfigError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
            f"Found {','.join(names)}. The valid options based on the current configuration are {','.join(own)}"
        )


def _check_limits(get: Any) -> None:
    if 0 < get("queued.max.request.bytes") < get("socket.request.max.bytes"):
        raise ConfigError("queued.max.request.bytes must be larger or equal to socket.request.max.bytes")
    if get("max.connections.per.ip") == 0 and not get("max.connections.per.ip.overrides"):
        raise ConfigError(
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
        )
    if "classic" not in get("group.coordinator.rebalance.protocols"):
        raise ConfigError("Disabling the 'classic' protocol is not supported.")
    _check_cordoned(get)
    if get("offsets.topic.compression.codec") not in range(5):
        raise ConfigError(f"Unknown compression type id: {get('offsets.topic.compression.codec')}")


def _check_cordoned(get: Any) -> None:
    missing = [
        folder
        for folder in get("cordoned.log.dirs")
        if folder != "*" and folder not in (get("log.dirs") or get("log.dir"))
    ]
    if missing:
        raise ConfigError(
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}"
        )
