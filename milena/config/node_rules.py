"""Checks across the keys of one node: Kafka's, in its order and with its messages (KafkaConfig.validateValues)."""

from __future__ import annotations

from typing import Final

from milena.config.listeners import NAMES_KEY
from milena.config.node_values import NodeValues
from milena.config.tiered_rules import check_local_retention
from milena.config.topic_config import broker_value
from milena.config.values import ConfigError

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def check(config: NodeValues) -> None:
    """Check the rules between keys. Raises ConfigError for the first rule that is violated."""
    if "inter.broker.listener.name" in config.static and "security.inter.broker.protocol" in config.static:
        raise ConfigError("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
    if config.get_int("broker.id") >= 0 and config.get_int("broker.id") != config.node_id:
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.")
    _check_times(config)
    _check_replication(config)
    _check_roles(config)
    _check_addresses(config)
    _check_limits(config)
    if config.get_bool("remote.log.storage.system.enable"):
        _check_tier(config)


def _check_tier(config: NodeValues) -> None:
    """Check that the defaults of topics are valid for one with remote storage."""
    keys = ("retention.bytes", "local.retention.bytes", "retention.ms", "local.retention.ms")
    check_local_retention({name: broker_value(config, name) for name in keys})


def _check_times(config: NodeValues) -> None:
    roll, jitter = config.get_int_or_none("log.roll.ms"), config.get_int_or_none("log.roll.jitter.ms")
    if roll is not None and roll < 1:
        raise ConfigError("log.roll.ms must be greater than or equal to 1")
    if jitter is not None and jitter < 0:
        raise ConfigError("log.roll.jitter.ms must be greater than or equal to 0")
    given = (config.get_int_or_none(f"log.retention.{unit}") for unit in ("ms", "minutes", "hours"))
    if next(value for value in given if value is not None) == 0:
        raise ConfigError("log.retention.ms must be unlimited (-1) or, greater than or equal to 1")


def _check_replication(config: NodeValues) -> None:
    if config.get_int("log.cleaner.threads") < 1:
        raise ConfigError("log.cleaner.threads must be at least 1.")  # Kafka fails with "/ by zero"
    if config.get_int("log.cleaner.dedupe.buffer.size") < config.get_int("log.cleaner.threads") * 1024 * 1024:
        raise ConfigError("log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
    if config.get_int("replica.fetch.wait.max.ms") > config.get_int("replica.socket.timeout.ms"):
        raise ConfigError(
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms "
            "to prevent unnecessary socket timeouts"
        )
    selector = config.get_str_or_none("replica.selector.class")
    if selector not in (None, RACK_AWARE_SELECTOR):
        raise ConfigError(
            f"Invalid value {selector} for configuration replica.selector.class: only {RACK_AWARE_SELECTOR} is built in"
        )
    if config.get_int("replica.fetch.wait.max.ms") > config.get_int("replica.lag.time.max.ms"):
        raise ConfigError(
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms "
            "to prevent frequent changes in ISR"
        )


def _check_roles(config: NodeValues) -> None:
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
    if config.get_bool("controller.quorum.auto.join.enable"):
        raise ConfigError(
            "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role."
        )


def _check_addresses(config: NodeValues) -> None:
    advertised = config.advertised_listeners
    if any(endpoint.host == "0.0.0.0" for endpoint in (*advertised, *config.advertised_controller_listeners)):
        raise ConfigError(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
        )
    known = {endpoint.name for endpoint in config.listeners} | set(config.controller_listener_names)
    for name in config.get_list("early.start.listeners"):
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


def _check_limits(config: NodeValues) -> None:
    if 0 < config.get_int("queued.max.request.bytes") < config.get_int("socket.request.max.bytes"):
        raise ConfigError("queued.max.request.bytes must be larger or equal to socket.request.max.bytes")
    if config.get_int("max.connections.per.ip") == 0 and not config.get_str("max.connections.per.ip.overrides"):
        raise ConfigError(
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
        )
    if "classic" not in config.get_list("group.coordinator.rebalance.protocols"):
        raise ConfigError("Disabling the 'classic' protocol is not supported.")
    _check_cordoned(config)
    if config.get_int("offsets.topic.compression.codec") not in range(5):
        raise ConfigError(f"Unknown compression type id: {config.get_int('offsets.topic.compression.codec')}")


def _check_cordoned(config: NodeValues) -> None:
    missing = [
        folder
        for folder in config.get_list("cordoned.log.dirs")
        if folder != "*" and folder not in (config.get_list("log.dirs") or config.get_list("log.dir"))
    ]
    if missing:
        raise ConfigError(
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}"
        )
