"""Settings from properties files, arguments and the environment."""

from __future__ import annotations

import pytest

from milena.config.sources import Settings, from_environment, from_overrides, from_properties, variable_of
from milena.config.values import ConfigError


def values(settings: Settings) -> dict[str, str]:
    return {key: setting.value for key, setting in settings.items()}


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    text = rb"""
# comment
! comment too
   node.id=1
process.roles = broker
log.dirs : /a
broker.rack   east coast
a\ key\:b=1\=2
listeners=PLAINTEXT://:9092,\
          CONTROLLER://:9093
empty=
alone
tab=a\tb\u0041\\
last=1
last=2"""
    assert values(from_properties(text, "server.properties")) == {
        "node.id": "1",
        "process.roles": "broker",
        "log.dirs": "/a",
        "broker.rack": "east coast",
        "a key:b": "1=2",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "empty": "",
        "alone": "",
        "tab": "a\tbA\\",
        "last": "2",
    }


def test_a_setting_knows_its_line() -> None:
    settings = from_properties(b"a=1\r\nb=2\\\n  3\nc=4\n", "server.properties")
    assert {key: setting.source for key, setting in settings.items()} == {
        "a": "server.properties:1",
        "b": "server.properties:2",
        "c": "server.properties:4",
    }


def test_a_comment_is_not_continued() -> None:
    assert values(from_properties(b"# a \\\nb=1", "f")) == {"b": "1"}


def test_a_malformed_escape_is_named() -> None:
    with pytest.raises(ConfigError, match=r"f:2: malformed \\uxxxx escape"):
        from_properties(rb"a=1" + b"\n" + rb"b=\u12", "f")


def test_overrides_are_pairs() -> None:
    settings = from_overrides(["a=1", "b=c=d", "e="])
    assert values(settings) == {"a": "1", "b": "c=d", "e": ""}
    assert settings["a"].source == "--override a"


@pytest.mark.parametrize("pair", ["a", "=1", ""])
def test_an_override_without_key_or_value_is_refused(pair: str) -> None:
    with pytest.raises(ConfigError, match="expected key=value"):
        from_overrides([pair])


def test_the_environment_is_mapped_as_by_kafkas_image() -> None:
    environment = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_LISTENER_NAME_A__B_SSL___X": "2",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_OPTS": "",
        "KAFKA_JMX_PORT": "1",
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO",
        "CLUSTER_ID": "x",
        "PATH": "/bin",
    }
    settings = from_environment(environment)
    assert values(settings) == {"node.id": "1", "listener.name.a_b.ssl-x": "2"}
    assert settings["node.id"].source == "environment variable KAFKA_NODE_ID"


@pytest.mark.parametrize("key", ["log.dirs", "rsm.config.read_ahead", "a-b.c_d"])
def test_the_variable_of_a_key_is_read_as_that_key(key: str) -> None:
    assert list(from_environment({variable_of(key): "x"})) == [key]
