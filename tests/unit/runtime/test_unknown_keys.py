"""Unknown keys of files and variables are listed in one warning; those that a person typed are errors."""

from __future__ import annotations

import pytest

from milena.commands.node import checked
from milena.config.broker_config import parse_settings, unknown_keys
from milena.config.keys import KEYS, UNSUPPORTED
from milena.config.node_config import NodeConfig
from milena.config.sources import Settings, from_environment, from_overrides, from_properties, plain, variable_of
from milena.config.values import ConfigError

LEAST = plain(NodeConfig.of().originals)


def test_one_warning_lists_all_unknown_keys_with_the_nearest_key_or_the_reason() -> None:
    text = b"log.retension.hours=1\nqwertz=1\nzookeeper.connect=z\nconfluent.license=c\nretention.ms=1\nsegment.bites=1"
    config = NodeConfig(LEAST | from_properties(text, "f"))
    assert config.warnings == (
        "unknown keys, without effect: f:1: log.retension.hours (did you mean log.retention.hours?); f:2: qwertz; "
        "f:3: zookeeper.connect (removed from Kafka); f:4: confluent.license (a key of Confluent Server); "
        "f:5: retention.ms (a key of topics; for brokers it is log.retention.ms); "
        "f:6: segment.bites (did you mean log.segment.bytes?)",
    )


def test_a_variable_makes_unknown_keys_an_error() -> None:
    settings = LEAST | from_properties(b"num.partitons=3", "f")
    for value in ("", "0", "false"):
        assert checked(settings, {"MILENA_STRICT_CONFIG": value}).unknown
    with pytest.raises(ConfigError, match=r"MILENA_STRICT_CONFIG is set, and keys are unknown: f:1: num\.partitons"):
        checked(settings, {"MILENA_STRICT_CONFIG": "true"})


def test_variables_of_other_images_are_named_with_the_reason() -> None:
    environment = {
        "KAFKA_CFG_NODE_ID": "1",
        "KAFKA_CREATE_TOPICS": "a:1:1",
        "KAFKA_ENABLE_KRAFT": "yes",
        "KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR": "1",
    }
    assert [str(key) for key in unknown_keys(from_environment(environment))] == [
        "environment variable KAFKA_CFG_NODE_ID: cfg.node.id (Bitnami's name; here the variable is KAFKA_NODE_ID)",
        "environment variable KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR: "
        "confluent.license.topic.replication.factor (a key of Confluent Server)",
        "environment variable KAFKA_CREATE_TOPICS: create.topics (a variable of other images; "
        "create topics with `milena topic create`)",
        "environment variable KAFKA_ENABLE_KRAFT: enable.kraft (a variable of Bitnami's image)",
    ]


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("num.partitons", "num.partitions"),
        ("log.dris", "log.dirs"),
        ("node_id", "node.id"),
        ("Node.Id", "node.id"),
        ("my.plug-in.url", None),
        ("zookeeper.conect", None),
        ("inter.broker.protocol.version", None),
    ],
)
def test_one_or_two_wrong_characters_are_a_near_miss(key: str, near: str | None) -> None:
    (unknown,) = unknown_keys(plain({key: "1"}))
    assert (unknown.nearest if unknown.near_miss else None) == near


@pytest.mark.parametrize(
    "settings", [from_overrides(["num.partitons=1"]), plain({"num.partitons": "1"})], ids=["option", "code"]
)
def test_an_unknown_key_that_a_person_typed_is_an_error(settings: Settings) -> None:
    with pytest.raises(ConfigError, match=r"unknown configuration key 'num.partitons'; did you mean 'num.partitions'"):
        parse_settings(settings)


def test_a_typed_key_of_another_product_is_an_error_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"unknown configuration key 'confluent.a' \(a key of Confluent Server\)"):
        parse_settings(from_overrides(["confluent.a=1"]))


def test_keys_of_plug_ins_and_listeners_are_known() -> None:
    names = ("rsm.config.a", "rlmm.config.a", "listener.name.a.b", "config.providers.a.class", "metrics.context.a")
    assert unknown_keys(plain(dict.fromkeys(names, "1"))) == ()


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_SERVICE_HOST",
        "KAFKA_SERVICE_PORT",
        "KAFKA_SERVICE_PORT_CLIENT",
        "KAFKA_HEADLESS_SERVICE_HOST",
        "KAFKA_PORT_9092_TCP",
        "KAFKA_PORT_9092_TCP_ADDR",
        "KAFKA_UI_PORT_8080_TCP_PROTO",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    ],
)
def test_variables_of_scripts_and_of_the_platform_are_no_settings(variable: str) -> None:
    assert from_environment({variable: "1"}) == {}


def test_an_injected_port_is_recognised_by_its_value() -> None:
    assert from_environment({"KAFKA_PORT": "tcp://10.0.0.1:9092", "KAFKA_REST_PORT": "tcp://10.0.0.2:8082"}) == {}
    assert list(from_environment({"KAFKA_PORT": "9092"})) == ["port"]


@pytest.mark.parametrize("key", sorted(KEYS.keys() | UNSUPPORTED))
def test_the_variable_of_each_key_is_a_setting(key: str) -> None:
    assert list(from_environment({variable_of(key): "x"})) == [key]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            from_properties(b"broker.id=7\nzookeeper.connect=localhost:2181\n", "f"),
            'Missing required configuration "process.roles" which has no default value. zookeeper.connect is set, but '
            "neither Kafka 4 nor Milena uses ZooKeeper. A single node needs, for example, "
            "process.roles=broker,controller controller.listener.names=CONTROLLER "
            "listeners=PLAINTEXT://:9092,CONTROLLER://:9093 controller.quorum.voters=7@localhost:9093",
        ),
        (
            from_environment({"KAFKA_CFG_NODE_ID": "1", "KAFKA_LISTENERS": "A://:1"}),
            'Missing required configuration "node.id" which has no default value. KAFKA_CFG_* are variables of '
            "Bitnami's image; here they are KAFKA_*. A single node needs, for example, "
            "KAFKA_NODE_ID=1 KAFKA_PROCESS_ROLES=broker,controller KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER "
            "KAFKA_LISTENERS=A://:1,CONTROLLER://:9093 KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9093",
        ),
        (
            from_environment(
                {
                    "KAFKA_ADVERTISED_LISTENERS": "A://kafka:9092,B://localhost:9093",
                    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "A:PLAINTEXT,B:PLAINTEXT",
                }
            ),
            'Missing required configuration "node.id" which has no default value. A single node needs, for example, '
            "KAFKA_NODE_ID=1 KAFKA_PROCESS_ROLES=broker,controller KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER "
            "KAFKA_LISTENERS=A://:9092,B://:9093,CONTROLLER://:9094 "
            "KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9094 "
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT",
        ),
    ],
    ids=["ZooKeeper", "Bitnami", "own listeners"],
)
def test_missing_required_keys_are_an_error_that_says_what_to_set(settings: Settings, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        NodeConfig(settings)
    assert str(raised.value) == message
