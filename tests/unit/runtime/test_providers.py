"""Variables in values are resolved by Kafka's config providers, and never used literally."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from milena.config.node_config import NodeConfig, check_dynamic
from milena.config.providers import MAX_READ, MAX_VARIABLES, check_resolved, hide, resolve
from milena.config.sources import Settings, from_properties, plain
from milena.config.values import ConfigError
from milena.node.metadata.config_views import ConfigView
from milena.node.metadata.image import BROKER_RESOURCE, MetadataImage

CLASSES = "".join(
    f"config.providers.{name}.class=org.apache.kafka.common.config.provider.{kind}ConfigProvider\n"
    for name, kind in (("env", "EnvVar"), ("file", "File"), ("dir", "Directory"))
)
PROVIDERS = f"config.providers=env, file,dir\n{CLASSES}"
ENVIRONMENT = {"RACK": "east", "SECRET": "hidden", "COUNT": "6"}


def settings(text: str) -> Settings:
    return from_properties((PROVIDERS + text).encode(), "f")


def resolved(text: str) -> dict[str, str]:
    found = resolve(settings(text), ENVIRONMENT)
    return {name: setting.value for name, setting in found.items() if not name.startswith("config.providers")}


def error_of(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        resolve(settings(text), ENVIRONMENT)
    return str(raised.value)


def test_each_provider_resolves_its_variables(tmp_path: Path) -> None:
    (tmp_path / "secrets.properties").write_text("password=p\\u00e4ss=1\nother=ü\n", encoding="utf-8")
    (tmp_path / "token").write_text("t\n")
    assert resolved(
        "broker.rack=${env:RACK}-${env:COUNT}\n"
        f"rsm.config.url=${{file:{tmp_path}/secrets.properties:password}}${{file:{tmp_path}/secrets.properties:other}}\n"
        f"rsm.config.token=${{dir:{tmp_path}:token}}\n"
    ) == {"broker.rack": "east-6", "rsm.config.url": "päss=1ü", "rsm.config.token": "t\n"}


def test_a_resolved_value_is_not_resolved_again() -> None:
    found = resolve(settings("broker.rack=${env:NESTED}"), {"NESTED": "${env:RACK}"})
    assert found["broker.rack"].value == "${env:RACK}"


def test_the_node_uses_the_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_OF_THIS_TEST", str(tmp_path))
    config = NodeConfig(plain(NodeConfig.of().originals) | settings("log.dirs=${env:DATA_OF_THIS_TEST}/a"))
    assert config.log_dirs == (f"{tmp_path}/a",)
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("log.dirs=/data/${env:NONE}", "f:5: log.dirs: the variable ${env:NONE} has no value"),
        (
            "log.dirs=${vault:a:b}",
            "f:5: log.dirs: config.providers does not define 'vault' of the variable ${vault:a:b}",
        ),
        ("log.dirs=${HOME}/x", "f:5: log.dirs: ${HOME} is not a variable of a config provider: ${PROVIDER:KEY}"),
        (
            "rsm.config.url=${env:path:A}",
            "f:5: rsm.config.url: Path is not supported for EnvVarConfigProvider, invalid value 'path'",
        ),
        ("broker.rack=${file:/no/such:a}", "f:5: broker.rack: Could not read properties from file /no/such"),
        ("broker.rack=${dir:/no/such:a}", "f:5: broker.rack: the variable ${dir:/no/such:a} has no value"),
        (
            "config.providers.env.param.allowlist.pattern=R.*\nbroker.rack=${env:SECRET}",
            "f:6: broker.rack: the variable ${env:SECRET} has no value",
        ),
        (
            "config.providers.file.param.allowed.paths=/tmp\nbroker.rack=${file:/tmp/../etc/x:a}",
            "f:6: broker.rack: The path /tmp/../etc/x is not allowed to be accessed",
        ),
        (
            "config.providers.dir.param.allowed.paths=/tmp\nbroker.rack=${dir:/tmpfiles:a}",
            "f:6: broker.rack: The path /tmpfiles is not allowed to be accessed",
        ),
        ("config.providers.file.param.allowed.paths=tmp", "f:3: Path tmp is not absolute"),
        ("config.providers.dir.param.allowed.paths=/tmp,/no/such", "f:4: Path /no/such does not exist"),
    ],
)
def test_a_variable_without_a_value_is_an_error(text: str, message: str) -> None:
    assert error_of(text) == message


def test_only_regular_files_of_limited_length_are_read(tmp_path: Path) -> None:
    """A device or a pipe would block the broker: any client may name it in a dynamic configuration."""
    os.mkfifo(tmp_path / "pipe")
    for name, length in (("long", MAX_READ + 1), ("half", MAX_READ // 2), ("other", MAX_READ // 2), ("more", 3)):
        (tmp_path / name).write_text("a=" + "x" * (length - 2))
    file, folder = f"${{file:{tmp_path}/", f"${{dir:{tmp_path}:"
    assert "Could not read properties from file" in error_of(f"broker.rack={file}pipe:a}}")
    assert "Could not read properties from file" in error_of(f"broker.rack={file}long:a}}")
    assert "has no value" in error_of(f"broker.rack={folder}pipe}}")
    assert "Could not read file" in error_of(f"broker.rack={folder}long}}")
    assert resolved("a=" + 3 * f"{file}half:a}}").keys() == {"a"}
    assert f"Could not read file {tmp_path}/more" in error_of(f"a={folder}half}}{folder}other}}{folder}more}}")


def test_braces_that_are_not_closed_take_no_quadratic_time() -> None:
    text = "${" * 1_000_000
    assert resolve(settings(f"broker.rack={text}"), {})["broker.rack"].value == text


def test_a_value_has_a_limited_number_of_variables() -> None:
    variables = "${env:COUNT}" * MAX_VARIABLES
    assert resolved(f"broker.rack={variables}") == {"broker.rack": "6" * MAX_VARIABLES}
    assert error_of(f"broker.rack={variables}${{env:COUNT}}") == (
        f"f:5: broker.rack: more than {MAX_VARIABLES} variables in a value"
    )


def test_a_variable_of_a_key_without_effect_may_have_no_value() -> None:
    assert resolved("sasl.jaas.config=${env:NONE}") == {"sasl.jaas.config": "${env:NONE}"}
    assert "Could not read" in error_of("sasl.jaas.config=${file:/no/such:a}")


def test_an_unknown_provider_class_is_an_error_even_without_a_variable() -> None:
    with pytest.raises(ConfigError) as raised:
        NodeConfig(
            plain(NodeConfig.of().originals)
            | from_properties(b"config.providers=vault\nconfig.providers.vault.class=com.example.Vault", "f")
        )
    assert str(raised.value).startswith(
        "f:2: Invalid value com.example.Vault for configuration config.providers.vault.class: "
        "Could not load config provider class or one of its dependencies (built in: "
    )


def test_without_providers_a_variable_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"config\.providers does not define 'env' of the variable \$\{env:HOME\}"):
        NodeConfig.of(broker_rack="${env:HOME}")


def test_an_error_shows_the_variable_and_not_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THIS_TEST", "hidden")
    with pytest.raises(ConfigError) as raised:
        NodeConfig(plain(NodeConfig.of().originals) | settings("num.partitions=${env:SECRET_OF_THIS_TEST}"))
    assert str(raised.value) == "f:5: num.partitions=${env:SECRET_OF_THIS_TEST}: not a valid value of type INT"


@pytest.mark.parametrize(
    "text",
    [
        "inter.broker.listener.name=${env:SECRET_OF_THIS_TEST}",
        "advertised.listeners=${env:SECRET_OF_THIS_TEST}://h:1",
        "controller.quorum.voters=1@${env:SECRET_OF_THIS_TEST}",
    ],
)
def test_an_error_across_keys_shows_the_variable_and_not_its_value(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THIS_TEST", "hidden")
    with pytest.raises(ConfigError) as raised:
        NodeConfig(plain(NodeConfig.of().originals) | settings(text))
    assert "hidden" not in str(raised.value).lower()


def test_values_and_the_elements_of_lists_are_hidden_as_whole_words() -> None:
    hidden = [("${env:A}", "secret, other"), ("${env:B}", "1"), ("${env:C}", "")]
    assert hide("secret and (other), secrets; 1 of 10", hidden) == "${env:A} and (${env:A}), secrets; ${env:B} of 10"


def test_a_value_is_not_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTER_OF_THIS_TEST", "${env:SECRET_OF_THIS_TEST}")
    monkeypatch.setenv("SECRET_OF_THIS_TEST", "hidden")
    once = resolve(settings("broker.rack=${env:OUTER_OF_THIS_TEST}"))
    assert resolve(once)["broker.rack"].value == "${env:SECRET_OF_THIS_TEST}"


def test_a_dynamic_configuration_has_providers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """DynamicBrokerConfig.resolveVariableConfigs"""
    monkeypatch.setenv("SIZE_OF_THIS_TEST", "5000")
    own = {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "message.max.bytes": "${env:SIZE_OF_THIS_TEST}",
        "log.retention.ms": "${env:NO_SUCH_VARIABLE}",
    }
    check_dynamic(own, per_broker=False)
    config = NodeConfig.of().with_dynamic(default=own, broker={})
    assert config.get("message.max.bytes") == 5000
    assert config.get("log.retention.ms") is None
    assert config.dynamic_default["message.max.bytes"] == "${env:SIZE_OF_THIS_TEST}"
    with pytest.raises(ConfigError, match=r"Invalid value \$\{env:A\} .*config.providers does not define 'env'"):
        check_dynamic({"message.max.bytes": "${env:A}"}, per_broker=False)
    check_dynamic({"message.max.bytes": "${env:A}"}, per_broker=False, after=own)


DYNAMIC = {
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log.retention.ms": "${env:SIZE_OF_THIS_TEST}"}, None),
        ({"anything": "${env:NONE}"}, None),
        (
            {"log.retention.ms": "${env:NO_SUCH_VARIABLE}"},
            "Invalid value ${env:NO_SUCH_VARIABLE} for configuration log.retention.ms: "
            "the variable ${env:NO_SUCH_VARIABLE} has no value",
        ),
        (
            {"num.io.threads": "${env:WORD_OF_THIS_TEST}"},
            "Invalid value ${env:WORD_OF_THIS_TEST} for configuration num.io.threads: not a valid value of type INT",
        ),
        (
            {"config.providers.env.param.allowlist.pattern": ".*", "num.io.threads": "${env:SIZE_OF_THIS_TEST}"},
            "Invalid configuration config.providers.env.param.allowlist.pattern: "
            "a dynamic configuration has no patterns",
        ),
        (
            {"config.providers.env.class": "com.Nope", "num.io.threads": "${env:SIZE_OF_THIS_TEST}"},
            "Invalid value com.Nope for configuration config.providers.env.class: Could not load config provider class",
        ),
    ],
)
def test_the_broker_that_is_asked_checks_the_values(
    changes: dict[str, str], message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka 4.3.1 refuses the last three with INVALID_REQUEST, too."""
    monkeypatch.setenv("SIZE_OF_THIS_TEST", "5000")
    monkeypatch.setenv("WORD_OF_THIS_TEST", "hidden")
    if message is None:
        check_resolved(DYNAMIC | changes)
        return
    with pytest.raises(ConfigError) as raised:
        check_resolved(DYNAMIC | changes)
    assert str(raised.value).startswith(message)
    assert "hidden" not in str(raised.value)


def test_clients_see_the_variables_of_a_dynamic_configuration_and_not_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any client may set a variable of any provider. Kafka shows its value."""
    monkeypatch.setenv("WORD_OF_THIS_TEST", "hidden")
    key = "max.connections.per.ip.overrides"
    values = DYNAMIC | {key: "${env:WORD_OF_THIS_TEST}"}
    for default, broker in ((values, {}), ({}, values)):
        config = NodeConfig.of().with_dynamic(default=default, broker=broker)
        assert config.get(key) == "hidden"
        view = ConfigView(config, MetadataImage(), None, synonyms=True, documentation=False)
        entries = view.describe(BROKER_RESOURCE, "1")
        assert [entry["value"] for entry in entries if entry["name"] == key] == ["${env:WORD_OF_THIS_TEST}"]
        assert "hidden" not in str(entries)
