"""The configuration of a node: what follows from the keys, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.config.listeners import Endpoint
from milena.config.node_config import NodeConfig, check_dynamic
from milena.config.sources import Settings, from_overrides, from_properties, plain
from milena.config.values import ConfigError

CONTROLLER = {
    "process_roles": "controller",
    "node_id": 3,
    "controller_quorum_voters": "3@h:9093",
    "listeners": "CONTROLLER://h:9093",
}
COMBINED = CONTROLLER | {"process_roles": "broker,controller", "listeners": "CONTROLLER://:9093,PLAINTEXT://h:9092"}


def test_a_brokers_addresses() -> None:
    config = NodeConfig.of(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://example.org:19092")
    assert config.is_broker and not config.is_controller
    assert config.listeners == (Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "example.org", 19092, "PLAINTEXT"),)
    assert config.inter_broker_listener == "PLAINTEXT"
    assert config.quorum_voters == {1000: ("localhost", 9093)}


def test_a_compose_files_listeners() -> None:
    config = NodeConfig.of(
        listeners="INTERNAL://0.0.0.0:29092,EXTERNAL://[::]:9092",
        advertised_listeners="INTERNAL://kafka:29092,EXTERNAL://localhost:9092",
        listener_security_protocol_map="CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        inter_broker_listener_name="internal",
    )
    assert [endpoint.host for endpoint in config.broker_listeners] == ["0.0.0.0", "::"]
    assert config.inter_broker_listener == "INTERNAL"


def test_a_combined_node_serves_both() -> None:
    config = NodeConfig.of(**COMBINED)
    assert config.roles == {"broker", "controller"}
    assert [endpoint.name for endpoint in config.broker_listeners] == ["PLAINTEXT"]
    assert [endpoint.name for endpoint in config.controller_listeners] == ["CONTROLLER"]
    assert config.security_protocols["CONTROLLER"] == "PLAINTEXT"


def test_a_controllers_advertised_address_is_its_own_or_the_listeners() -> None:
    assert NodeConfig.of(**CONTROLLER).advertised_controller_listeners[0].host == "h"
    moved = NodeConfig.of(**CONTROLLER, advertised_listeners="CONTROLLER://elsewhere:1")
    assert moved.advertised_controller_listeners == (Endpoint("CONTROLLER", "elsewhere", 1, "PLAINTEXT"),)


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_a_controller_on_all_addresses_is_advertised_as_the_voter_that_it_is(host: str) -> None:
    """KafkaConfig.effectiveAdvertisedControllerListeners; Testcontainers' class for Kafka's image needs it."""
    both = {
        "controller_listener_names": "FIRST,SECOND",
        "listeners": f"FIRST://{host}:1,SECOND://{host}:2",
        "listener_security_protocol_map": "FIRST:PLAINTEXT,SECOND:PLAINTEXT",
    }
    first, second = NodeConfig.of(**CONTROLLER | both).advertised_controller_listeners
    assert (first.host, first.port) == ("h", 9093)
    assert (second.host, second.port) == ("", 2)
    explicit = NodeConfig.of(**CONTROLLER | both, advertised_listeners="FIRST://elsewhere:3")
    assert [(e.host, e.port) for e in explicit.advertised_controller_listeners] == [("elsewhere", 3), ("", 2)]


def test_folders() -> None:
    assert NodeConfig.of().log_dirs == ("/tmp/kafka-logs",)
    config = NodeConfig.of(log_dirs="/a,/b")
    assert (config.log_dirs, config.metadata_log_dir) == (("/a", "/b"), "/a")
    assert NodeConfig.of(log_dirs="data").log_dirs == (str(Path.cwd() / "data"),)
    assert NodeConfig.of(log_dir="/c", metadata_log_dir="/m").metadata_log_dir == "/m"


def test_the_old_name_of_the_node_id() -> None:
    text = b"broker.id=7\nprocess.roles=broker\ncontroller.listener.names=C\ncontroller.quorum.voters=1@h:1"
    assert NodeConfig(from_properties(text, "f")).node_id == 7


def test_what_has_no_effect_warns() -> None:
    former = "remote.log.compaction.work.orders.enable"
    settings = plain(
        {
            "metric.reporters": "x",
            "zookeeper.connect": "y",
            former: "true",
            "rsm.config.a": "1",
            "listener.name.a.b": "2",
        }
    )
    config = NodeConfig(plain(NodeConfig.of().originals) | settings)
    assert config.warnings == (
        "unknown keys, without effect: configuration: zookeeper.connect (removed from Kafka); "
        f"configuration: {former} (removed from Milena)",
        "keys not supported yet, without effect: configuration: metric.reporters",
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            from_overrides(["log.retension.hours=1"]),
            "--override log.retension.hours: unknown configuration key 'log.retension.hours'; "
            "did you mean 'log.retention.hours'?",
        ),
        (from_overrides(["qwertz=1"]), "--override qwertz: unknown configuration key 'qwertz'"),
        (
            from_properties(b"node.id=x", "f"),
            "f:1: Invalid value x for configuration node.id: Not a number of type INT",
        ),
    ],
)
def test_an_error_names_its_source_and_the_nearest_key(settings: Settings, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        NodeConfig(settings)
    assert str(raised.value) == expected


REFUSED = [
    ({"broker_id": 2}, "You must set `node.id` to the same value as `broker.id`."),
    ({"node_id": 1000}, "node id 1000 must not be included in the set of voters controller.quorum.voters=Set(1000)"),
    (CONTROLLER | {"node_id": 4}, "node id 4 must be included in the set of voters controller.quorum.voters=Set(3)"),
    ({"listeners": "PLAINTEXT://h:1,CONTROLLER://h:2"}, "when running KRaft with just the broker role"),
    (CONTROLLER | {"listeners": "CONTROLLER://h:1,PLAINTEXT://h:2"}, "when process.roles=controller"),
    (CONTROLLER | {"controller_listener_names": "CONTROLLER,OTHER"}, "when running the KRaft controller role"),
    ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "Each listener must have a different name"),
    ({"listeners": "PLAINTEXT://h:1,SSL://h:1"}, "Each listener must have a different port"),
    ({"listeners": "PLAINTEXT://[::1]:1,SSL://[::2]:1"}, "one needs to be IPv4 and the other IPv6"),
    ({"listeners": "FOO://h:1"}, "No security protocol defined for listener FOO"),
    ({"listeners": "h:9092"}, "Unable to parse h:9092 to a broker endpoint"),
    ({"listeners": "PLAINTEXT://h:70000"}, "Unable to parse PLAINTEXT://h:70000 to a broker endpoint"),
    (
        {"advertised_listeners": "PLAINTEXT://a..b:1"},
        "'a..b' of listener PLAINTEXT is not a host name: it has an empty label",
    ),
    ({"listeners": f"PLAINTEXT://{'h' * 64}:1"}, "is not a host name: it has a label longer than 63 characters"),
    ({"controller_quorum_voters": "3@a..b:1"}, "Failed to parse host name from entry 3@a..b:1"),
    ({"controller_quorum_bootstrap_servers": "a..b:1"}, "Failed to parse host name from a..b:1"),
    ({"listeners": "SSL://h:1"}, "Controller listener with name CONTROLLER defined in controller.listener.names not"),
    ({"listener_security_protocol_map": "PLAINTEXT:PLAIN"}, "Invalid security protocol `PLAIN` defined in"),
    ({"listener_security_protocol_map": "PLAINTEXT"}, "'PLAINTEXT' is not NAME:PROTOCOL"),
    ({"inter_broker_listener_name": "BAR"}, "Listener with name BAR defined in inter.broker.listener.name not found"),
    ({"inter_broker_listener_name": "SSL"}, "The valid options based on currently configured listeners are PLAINTEXT"),
    (
        {"inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "PLAINTEXT"},
        "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
    ),
    ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot use the nonroutable meta-address 0.0.0.0"),
    ({"advertised_listeners": "PLAINTEXT://h:1,SSL://h:2"}, "must be equal to or a subset of the ones defined"),
    ({"early_start_listeners": "X"}, "early.start.listeners contains listener X"),
    ({"controller_quorum_voters": ""}, "either controller.quorum.bootstrap.servers must contain"),
    ({"controller_quorum_auto_join_enable": "true"}, "only supported when process.roles contains the 'controller'"),
    ({"log_roll_ms": 0}, "log.roll.ms must be greater than or equal to 1"),
    ({"log_roll_jitter_ms": -1}, "log.roll.jitter.ms must be greater than or equal to 0"),
    ({"log_retention_minutes": 0}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
    ({"log_cleaner_dedupe_buffer_size": 1}, "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."),
    ({"replica_fetch_wait_max_ms": 40_000}, "replica.socket.timeout.ms should always be at least"),
    (
        {"replica_fetch_wait_max_ms": 31_000, "replica_socket_timeout_ms": 60_000},
        "should always be less than or equal to replica.lag.time.max.ms",
    ),
    ({"queued_max_request_bytes": 5}, "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"),
    ({"max_connections_per_ip": 0}, "can be set to zero only if max.connections.per.ip.overrides property is set."),
    ({"max_connections_per_ip_overrides": "a:b"}, "max.connections.per.ip.overrides: 'a:b' is not host:count"),
    ({"group_coordinator_rebalance_protocols": "consumer"}, "Disabling the 'classic' protocol is not supported."),
    ({"cordoned_log_dirs": "/x"}, "Missing entries : /x"),
    ({"offsets_topic_compression_codec": 9}, "Unknown compression type id: 9"),
]


@pytest.mark.parametrize(("values", "expected"), REFUSED, ids=lambda value: None)
def test_keys_that_do_not_agree_are_refused_with_kafkas_words(values: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        NodeConfig.of(**values)
    assert expected in str(raised.value)


@pytest.mark.parametrize("missing", ["node.id", "process.roles", "controller.listener.names"])
def test_a_required_key_is_missed(missing: str) -> None:
    settings = plain({name: value for name, value in NodeConfig.of().originals.items() if name != missing})
    with pytest.raises(ConfigError, match=f'Missing required configuration "{missing}" which has no default value'):
        NodeConfig(settings)


def test_dynamic_values_stand_over_static_ones() -> None:
    config = NodeConfig.of(log_retention_ms=5, log_segment_bytes=2_000_000)
    changed = config.with_dynamic(
        default={"log.retention.ms": "6", "message.max.bytes": "7", "node.id": "99", "log.roll.ms": "bad"},
        broker={"log.retention.ms": "8"},
    )
    assert (changed.get("log.retention.ms"), changed.get("message.max.bytes")) == (8, 7)
    assert (changed.get("log.segment.bytes"), changed.node_id, changed.get("log.roll.ms")) == (2_000_000, 1, None)
    assert config.get("log.retention.ms") == 5
    assert changed.with_dynamic(default={}, broker={}).get("log.retention.ms") == 5


def test_dynamic_changes_follow_kafkas_modes() -> None:
    check_dynamic({"log.retention.ms": "5", "anything": "goes"}, per_broker=False)
    check_dynamic({"listeners": "PLAINTEXT://:1"}, per_broker=True)
    with pytest.raises(ConfigError, match=r"Cannot update these configs dynamically: \[node.id, num.partitions\]"):
        check_dynamic({"num.partitions": "5", "node.id": "1"}, per_broker=True)
    with pytest.raises(ConfigError, match=r"Cannot update these configs at default cluster level: \[listeners\]"):
        check_dynamic({"listeners": "PLAINTEXT://:1"}, per_broker=False)
    with pytest.raises(ConfigError, match=r"Invalid value x for configuration log.retention.ms"):
        check_dynamic({"log.retention.ms": "x"}, per_broker=False)
