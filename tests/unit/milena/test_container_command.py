"""`milena container` accepts the configuration of Kafka's image and derives file and options of `milena node`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from milena.command_line.errors import UsageError, UserError
from milena.commands.container import (
    DATA,
    DEFAULTS,
    check_advertised,
    check_folders,
    configuration_file,
    implied,
    main,
    options,
    settings,
    used,
    variables,
    warn_of,
)
from milena.config.node_config import NodeConfig
from milena.config.sources import from_environment, from_properties

COMBINED = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094",
}


def test_without_a_file_and_variables_the_defaults_are_used(tmp_path: Path) -> None:
    nothing = {"PATH": "/bin", "CLUSTER_ID": "x", "KAFKA_HEAP_OPTS": "-Xmx1g"}
    assert configuration_file(nothing, str(tmp_path / "none"), "defaults") == "defaults"


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_NODE_ID",
        "KAFKA_BROKER_ID",
        "KAFKA_PROCESS_ROLES",
        "KAFKA_LISTENERS",
        "KAFKA_CONTROLLER_QUORUM_VOTERS",
        "KAFKA_CONTROLLER_LISTENER_NAMES",
        "KAFKA_ZOOKEEPER_CONNECT",
        "KAFKA_CFG_NODE_ID",
    ],
)
def test_variables_that_say_what_kind_of_node_it_is_replace_all_defaults(tmp_path: Path, variable: str) -> None:
    assert configuration_file({variable: "2"}, str(tmp_path / "none"), "defaults") is None


@pytest.mark.parametrize(
    "variable",
    ["KAFKA_ADVERTISED_LISTENERS", "KAFKA_NUM_PARTITIONS", "KAFKA_LOG_DIRS", "KAFKA_INTER_BROKER_LISTENER_NAME"],
)
def test_other_variables_override_the_defaults(tmp_path: Path, variable: str) -> None:
    assert configuration_file({variable: "x"}, str(tmp_path / "none"), "defaults") == "defaults"


def test_another_advertised_address_keeps_the_default_listeners() -> None:
    given = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:29092"}
    content = (Path(__file__).parents[3] / "docker" / "server.properties").read_text()
    assert implied(given, content, defaults=True) == {}
    both = from_properties(content.encode(), "file") | from_environment(given)
    config = NodeConfig(both)
    assert [listener.port for listener in config.listeners] == [9092, 9093]
    (advertised,) = config.advertised_listeners
    assert (advertised.host, advertised.port) == ("localhost", 29092)


@pytest.mark.parametrize(
    ("environment", "file", "said"),
    [
        ({}, DEFAULTS, f"the configuration is {DEFAULTS}, the default configuration"),
        (
            {"KAFKA_NUM_PARTITIONS": "3"},
            DEFAULTS,
            f"the configuration is {DEFAULTS}, the default configuration, and 1 KAFKA_* variable",
        ),
        (COMBINED, None, "the configuration is 4 KAFKA_* variables"),
        (COMBINED, "/mounted", "the configuration is /mounted, and 4 KAFKA_* variables"),
    ],
)
def test_a_sentence_says_where_the_configuration_comes_from(
    environment: dict[str, str], file: str | None, said: str
) -> None:
    assert used(environment, file) == said


@pytest.mark.parametrize("environment", [{}, {"KAFKA_NODE_ID": "2"}])
def test_variables_override_a_mounted_file(tmp_path: Path, environment: dict[str, str]) -> None:
    mounted = tmp_path / "server.properties"
    mounted.write_text("node.id=1\n")
    assert configuration_file(environment, str(mounted), "defaults") == str(mounted)


def test_an_empty_mounted_file_is_ignored(tmp_path: Path) -> None:
    mounted = tmp_path / "server.properties"
    mounted.write_text(" \n")
    assert configuration_file({}, str(mounted), "defaults") == "defaults"


def test_a_mounted_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Is a directory"):
        configuration_file({}, str(tmp_path), "defaults")


def test_listeners_are_derived_from_the_advertised_listeners() -> None:
    given = {"KAFKA_PROCESS_ROLES": "broker", "KAFKA_ADVERTISED_LISTENERS": "A://broker:19092,B://localhost:9092"}
    assert implied(given, "")["KAFKA_LISTENERS"] == "A://0.0.0.0:19092,B://0.0.0.0:9092"
    assert "KAFKA_LISTENERS" not in implied({**given, "KAFKA_PROCESS_ROLES": "controller"}, "")
    assert "KAFKA_LISTENERS" not in implied({**given, "KAFKA_LISTENERS": "A://:1"}, "")


def test_log_dirs_defaults_to_the_volume() -> None:
    assert implied({"KAFKA_NODE_ID": "1"}, "")["KAFKA_LOG_DIRS"] == DATA
    assert "KAFKA_LOG_DIRS" not in implied({"KAFKA_LOG_DIRS": "/data"}, "")
    assert "KAFKA_LOG_DIRS" not in implied({}, "log.dir=/data\n")


def test_a_combined_node_without_configured_voters_is_the_only_voter() -> None:
    assert implied(COMBINED, "")["KAFKA_CONTROLLER_QUORUM_VOTERS"] == "1@localhost:9094"
    for key, value in (
        ("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@other:9"),
        ("KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS", "other:9"),
        ("KAFKA_PROCESS_ROLES", "broker"),
        ("KAFKA_LISTENERS", "PLAINTEXT://:9092"),
        ("KAFKA_CONTROLLER_LISTENER_NAMES", ""),
    ):
        assert "KAFKA_CONTROLLER_QUORUM_VOTERS" not in implied({**COMBINED, key: value}, ""), key


def test_arguments_are_read_as_variables() -> None:
    assert variables(["A=1", "B=x=y", "C="]) == {"A": "1", "B": "x=y", "C": ""}
    with pytest.raises(UsageError, match="--broker"):
        variables(["--broker"])


def test_a_log_level_of_log4j_is_mapped_to_the_nearest_level() -> None:
    assert options({"KAFKA_LOG4J_ROOT_LOGLEVEL": "trace"})[-2:] == ["--log-level", "debug"]
    given = options({"MILENA_METRICS_PORT": "1234", "MILENA_OWN_ADDRESS_LIMIT": "5"})
    assert given == ["--control", "1234", "--control-host", "0.0.0.0", "--kafka-line", "--own-address-limit", "5"]
    with pytest.raises(UserError, match=r"KAFKA_LOG4J_ROOT_LOGLEVEL: 'loud' is not one of ALL, TRACE"):
        options({"KAFKA_LOG4J_ROOT_LOGLEVEL": "loud"})


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MILENA_METRICS_PORT", "http", "'http' is not a port number between 0 and 65535"),
        ("MILENA_OWN_ADDRESS_LIMIT", "soon", "'soon' is not a number of seconds"),
        ("MILENA_LOG_FORMAT", "xml", "'xml' is not one of text, json"),
    ],
)
def test_an_invalid_value_is_reported_with_the_name_of_its_variable(variable: str, value: str, said: str) -> None:
    with pytest.raises(UserError, match=f"^{variable}: {said}$"):
        options({variable: value})


def test_an_unusable_folder_is_reported_with_its_configuration_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wrong, right = f"{tmp_path}/file", f"{tmp_path}/right"
    with pytest.raises(UserError, match=rf"log\.dirs: {wrong}: File exists"):
        check_folders({"log.dirs": wrong})
    tier = {"log.dirs": f"{wrong},{right}", "remote.log.storage.system.enable": "true"}
    with pytest.raises(UserError, match=rf"rsm\.config\.dir: {wrong}/tier: Not a directory"):
        check_folders({**tier, "rsm.config.dir": f"{wrong}/tier"})
    check_folders({**tier, "rsm.config.dir": f"{tmp_path}/tier"})
    assert (tmp_path / "right").is_dir() and (tmp_path / "tier").is_dir()


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, ""),
        ({"KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN", "KAFKA_LOG4J_LOGGERS": ""}, ""),
        ({"KAFKA_LOG4J_LOGGERS": "kafka=DEBUG"}, "milena: KAFKA_LOG4J_LOGGERS has no effect: "),
        (
            {"KAFKA_LOG4J_LOGGERS": "kafka=DEBUG", "KAFKA_TOOLS_LOG4J_LOGLEVEL": "WARN"},
            "milena: KAFKA_LOG4J_LOGGERS and KAFKA_TOOLS_LOG4J_LOGLEVEL have no effect: ",
        ),
    ],
)
def test_variables_without_effect_are_reported_in_one_sentence(
    environment: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of(environment)
    said = capsys.readouterr().err
    assert said.startswith(message) and said.count("\n") == bool(message)


def test_a_controller_may_have_advertised_listeners() -> None:
    """Kafka's image refuses this. Kafka's controllers support it since KIP-853, and so do Milena's."""
    controller = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "controller",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@controller:9093",
        "KAFKA_LISTENERS": "CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": "CONTROLLER://controller:9093",
    }
    assert implied(controller, "") == {"KAFKA_LOG_DIRS": DATA}
    (advertised,) = NodeConfig(from_environment(controller | implied(controller, ""))).advertised_controller_listeners
    assert (advertised.host, advertised.port) == ("controller", 9093)
    check_advertised(settings(controller, ""))
    of_a_broker = "PLAINTEXT://controller:9092,CONTROLLER://controller:9093"
    with pytest.raises(UserError, match=r"^advertised\.listeners: PLAINTEXT are not listeners of this controller"):
        check_advertised(settings(controller | {"KAFKA_ADVERTISED_LISTENERS": of_a_broker}, ""))
    check_advertised(settings(COMBINED | {"KAFKA_ADVERTISED_LISTENERS": of_a_broker}, ""))


def test_a_misspelt_variable_is_named_after_an_error_that_it_may_have_caused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("milena.commands.container.end_by_sigterm", lambda: None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(UserError, match=r"^log\.dirs: .*/file: File exists") as raised:
        main(["KAFKA_NODE_ID=1", f"KAFKA_LOG_DIRS={tmp_path}/file", "KAFKA_NUM_PARTITONS=3"])
    assert raised.value.__notes__ == [
        "environment variable KAFKA_NUM_PARTITONS: unknown configuration key 'num.partitons'; "
        "did you mean 'num.partitions'?"
    ]


def test_an_error_does_not_show_what_a_config_provider_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hunter2").touch()
    mounted = tmp_path / "server.properties"
    mounted.write_text(
        "config.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        f"log.dirs={tmp_path}/${{env:FOLDER_OF_THIS_TEST}}/data\n"
    )
    monkeypatch.setattr("milena.commands.container.end_by_sigterm", lambda: None)
    monkeypatch.setattr("milena.commands.container.configuration_file", lambda _: str(mounted))
    monkeypatch.setattr(os, "environ", {"FOLDER_OF_THIS_TEST": "hunter2"})
    with pytest.raises(UserError, match=r"log\.dirs: .*/\$\{env:FOLDER_OF_THIS_TEST\}/data: Not a directory$"):
        main([])


def test_a_folder_is_not_named_after_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    providers = (
        "config.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "log.dirs=${env:FOLDER_OF_THIS_TEST}/data\n"
    )
    with pytest.raises(UserError, match=r"log\.dirs: the variable \$\{env:FOLDER_OF_THIS_TEST\} has no value"):
        settings({}, providers)
    monkeypatch.setenv("FOLDER_OF_THIS_TEST", str(tmp_path))
    assert settings({}, providers)["log.dirs"] == f"{tmp_path}/data"
