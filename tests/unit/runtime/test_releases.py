"""kafka.version limits the keys of nodes and topics, and their defaults, to those of a release."""

from __future__ import annotations

import pytest

from milena.config.keys import KEYS, TOPIC_KEYS, UNSUPPORTED, first_release, keys_of
from milena.config.node_config import NodeConfig, check_dynamic
from milena.config.sources import from_environment, from_overrides, from_properties, plain
from milena.config.topic_config import TopicConfig, validate_topic_config
from milena.config.values import ConfigError
from milena.releases import NEWEST, RELEASES

ENV_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
LEAST = dict(NodeConfig.of().originals)


def test_the_newest_release_has_all_keys() -> None:
    keys = NodeConfig.of().keys
    assert (keys.release, keys.broker, keys.topic, keys.unsupported) == (NEWEST, KEYS, TOPIC_KEYS, UNSUPPORTED)


def test_an_unknown_release_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"3\.9 for configuration kafka\.version: String must be one of: 4\.0, 4\.1"):
        NodeConfig.of(kafka_version="3.9")


def test_a_key_of_a_later_release_is_unknown() -> None:
    settings = plain(LEAST | {"kafka.version": "4.3"})
    with pytest.raises(
        ConfigError, match=r"log\.remote\.copy\.lag\.ms' \(a key of Kafka 4\.4; kafka\.version is 4\.3\)"
    ):
        NodeConfig(settings | from_overrides(["log.remote.copy.lag.ms=5"]))
    config = NodeConfig(settings | from_properties(b"group.streams.assignors=a\nlog.remote.copy.lag.ms=5", "f"))
    assert config.warnings == (
        "unknown keys, without effect: f:1: group.streams.assignors (a key of Kafka 4.4; kafka.version is 4.3); "
        "f:2: log.remote.copy.lag.ms (a key of Kafka 4.4; kafka.version is 4.3)",
    )
    assert config.get_int("log.remote.copy.lag.ms") == 0


def test_config_providers_work_in_every_release() -> None:
    providers = {
        "config.providers": "env",
        "config.providers.env.class": ENV_PROVIDER,
        "num.partitions": "${env:COUNT}",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNT", "7")
        for release in RELEASES:
            config = NodeConfig(
                plain(LEAST | {"kafka.version": release}) | from_overrides(map("=".join, providers.items()))
            )
            assert (config.get_int("num.partitions"), config.unknown) == (7, ())


def test_the_variable_of_a_container_is_not_that_of_kafkas_scripts() -> None:
    assert from_environment({"KAFKA_KAFKA_VERSION": "4.3"})["kafka.version"].value == "4.3"
    assert not from_environment({"KAFKA_VERSION": "4.3"})


def test_a_key_that_later_releases_dropped_is_known() -> None:
    settings = from_properties(b"group.share.enable=true", "f")
    before = NodeConfig(plain(LEAST | {"kafka.version": "4.2"}) | settings)
    assert before.warnings == ("keys not supported yet, without effect: f:1: group.share.enable",)
    assert "unknown keys" in NodeConfig(plain(LEAST | {"kafka.version": "4.3"}) | settings).warnings[0]


def test_defaults_and_bounds_are_those_of_the_release() -> None:
    values = [NodeConfig.of(kafka_version=release).get("group.coordinator.append.linger.ms") for release in RELEASES]
    assert values == [5, 5, -1, -1, -1]
    assert NodeConfig.of(kafka_version="4.0").get("group.coordinator.rebalance.protocols") == ("classic", "consumer")
    with pytest.raises(ConfigError, match=r"Value must be at least 0"):
        NodeConfig.of(kafka_version="4.1", group_coordinator_append_linger_ms=-1)


def test_keys_of_topics_are_those_of_the_release() -> None:
    old, new = NodeConfig.of(kafka_version="4.0"), NodeConfig.of()
    lag = {"remote.copy.lag.ms": "5"}
    with pytest.raises(ConfigError, match=r"Unknown topic config name: remote\.copy\.lag\.ms"):
        validate_topic_config(old, lag)
    validate_topic_config(new, lag)
    validate_topic_config(old, {"segment.bytes": "14"})
    with pytest.raises(ConfigError, match=r"Value must be at least 1048576"):
        validate_topic_config(new, {"segment.bytes": "14"})
    assert TopicConfig.effective(old, lag).remote_copy_lag_ms == 0
    assert TopicConfig.effective(new, lag).remote_copy_lag_ms == 5


def test_dynamic_values_are_checked_by_the_keys_of_the_release() -> None:
    change = {"max.decompressed.message.bytes": "0"}
    with pytest.raises(ConfigError, match=r"Value must be at least 1"):
        check_dynamic(change, per_broker=False)
    check_dynamic(change, per_broker=False, release="4.3")
    node = NodeConfig.of(kafka_version="4.3").with_dynamic(default={"max.decompressed.message.bytes": "9"}, broker={})
    assert node.get_int("max.decompressed.message.bytes") == 2_147_483_639


def test_milenas_own_and_required_keys_are_in_every_release() -> None:
    for release in RELEASES:
        assert {"kafka.version", "remote.log.compaction.enable", "controller.listener.names"} <= keys_of(
            release
        ).broker.keys()
        with pytest.raises(ConfigError, match="Missing required configuration"):
            NodeConfig(plain({"kafka.version": release, "node.id": "1", "process.roles": "broker"}))


def test_the_first_release_of_a_key() -> None:
    assert first_release("remote.copy.lag.ms") == first_release("log.remote.copy.lag.ms") == "4.4"
    assert first_release("cordoned.log.dirs") == "4.3"
    assert first_release("node.id") is first_release("no.such.key") is None
