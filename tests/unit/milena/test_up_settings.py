"""The settings of a cluster of `milena up`, and the configuration of its nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.command_line.errors import UserError
from milena.config.node_config import NodeConfig
from milena.config.sources import from_properties
from milena.tiered.metadata.settings import MetadataTopicSettings
from milena.tiered.store.tier_config import FSSPEC, LOCAL
from milena.up.command import COMMAND, topic
from milena.up.layout import ClusterDir, cluster_of
from milena.up.plan import check_overrides, escaped, nodes_of, properties_of, write_properties
from milena.up.settings import Settings, draw_cluster_id, load, save

ENABLED = "remote.log.storage.system.enable"


def settings_of(*arguments: str) -> Settings:
    settings = Settings()
    settings.take(COMMAND.parse(arguments))
    settings.controller_port = 20_000
    return settings


def test_omitted_options_keep_their_last_values(tmp_path: Path) -> None:
    cluster = ClusterDir(str(tmp_path))
    save(cluster, settings_of("--brokers", "2", "--port", "1000", "--override", "a=b=c", "--override", "d="))
    again = load(cluster)
    again.take(COMMAND.parse(["--port", "2000"]))
    assert (again.brokers, again.port, again.controller_port) == (2, 2000, 20_000)
    assert again.overrides == [("a", "b=c"), ("d", "")]


def test_brokers_have_the_given_number_of_log_directories_and_the_controller_has_one(tmp_path: Path) -> None:
    cluster = ClusterDir(str(tmp_path))
    save(cluster, settings_of("--brokers", "1", "--log-dirs", "2"))
    controller, broker = nodes_of(cluster, load(cluster))
    assert broker.log_dirs == [f"{tmp_path}/broker-1/data", f"{tmp_path}/broker-1/data-2"]
    assert controller.entry(None)["log.dirs"] == [controller.data]
    write_properties(load(cluster), broker, controller)
    assert f"log.dirs={','.join(broker.log_dirs)}" in Path(broker.properties).read_text()
    with pytest.raises(UserError, match="needs at least one log directory"):
        settings_of("--log-dirs", "0")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("log.segnent.bytes=1", r"--override log.segnent.bytes: unknown configuration key .* 'log.segment.bytes'\?"),
        ("num.io.threads=-4", "--override num.io.threads: Invalid value -4 .* Value must be at least 1"),
        (
            "authorizer.class.name=a.B",
            "--override authorizer.class.name: authorizer.class.name=a.B: authorizers are not",
        ),
        ("replica.fetch.wait.max.ms=500000", "--override: replica.socket.timeout.ms should always be at least"),
    ],
)
def test_an_override_that_a_node_would_refuse_is_an_error(override: str, said: str, tmp_path: Path) -> None:
    settings = settings_of("--override", override)
    with pytest.raises(UserError, match=said):
        check_overrides(settings, nodes_of(ClusterDir(str(tmp_path)), settings))


def test_valid_overrides_are_accepted(tmp_path: Path) -> None:
    settings = settings_of("--override", "log.segment.bytes=1048576", "--override", "broker.rack=a")
    check_overrides(settings, nodes_of(ClusterDir(str(tmp_path)), settings))


@pytest.mark.parametrize(
    ("option", "host", "why"),
    [
        ("--advertised-host", "kafka..local", "it has an empty label"),
        ("--advertised-host", "h" * 64, "it has a label longer than 63 characters"),
        ("--advertised-host", "a b", "it has characters that are invalid in a host name"),
        ("--host", ".x", "it has an empty label"),
        ("--host", "1::2::3", "it is not an IPv6 address"),
    ],
)
def test_an_invalid_host_name_is_refused_with_its_option(option: str, host: str, why: str) -> None:
    with pytest.raises(UserError, match=f"^{option} '{host}': not a host name: {why}$"):
        settings_of(option, host)


@pytest.mark.parametrize("host", ["kafka_1.local.", "::1", "[::1]", "fe80::1%eth0", "10.0.0.1", "0.0.0.0", ""])
def test_valid_host_names_and_addresses_are_accepted(host: str) -> None:
    assert settings_of("--advertised-host", host).advertised_host == host


def test_overrides_and_metrics_are_kept_until_they_are_replaced_or_removed(tmp_path: Path) -> None:
    cluster = ClusterDir(str(tmp_path))
    save(cluster, settings_of("--override", "a=1", "--override", "b=2", "--metrics", "9400"))

    def started(*arguments: str) -> Settings:
        settings = load(cluster)
        settings.take(COMMAND.parse(arguments))
        return settings

    again = started()
    assert (again.overrides, again.overrides_given, again.metrics) == ([("a", "1"), ("b", "2")], False, 9400)
    assert started("--override", "c=3").overrides == [("c", "3")]
    assert started("--no-override").overrides == []
    assert started("--no-override", "--override", "c=3").overrides == [("c", "3")]
    assert started("--no-metrics").metrics is None
    again.controller_port = 1
    found = {node.name: node.metrics_address for node in nodes_of(cluster, again)}
    assert found == {
        "broker-1": "127.0.0.1:9400",
        "broker-2": "127.0.0.1:9401",
        "broker-3": "127.0.0.1:9402",
        "controller-100": "127.0.0.1:9403",
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--brokers", "0"], "a cluster needs at least one broker"),
        (["--port", "65534"], "3 ports from there on exceed 65535"),
        (["--tier", "x", "--no-tier"], "--tier and --no-tier exclude each other"),
        (["--tier", ""], "--tier needs a folder or a URL"),
        (["--metrics", "1", "--no-metrics"], "--metrics and --no-metrics exclude each other"),
        (["--metrics", "65533"], "--metrics 65533: 4 ports from there on exceed 65535"),
        (["--metrics", "9090"], "--metrics 9090: its ports up to 9093 overlap those of the brokers"),
    ],
)
def test_invalid_and_contradicting_options_are_refused(arguments: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        settings_of(*arguments)


def test_brokers_have_ids_from_one_and_the_ports_in_order(tmp_path: Path) -> None:
    controller, *brokers = nodes_of(ClusterDir(str(tmp_path)), settings_of("--port", "19092"))
    assert (controller.id, controller.address) == (100, "127.0.0.1:20000")
    assert [(node.id, node.address) for node in brokers] == [
        (1, "127.0.0.1:19092"),
        (2, "127.0.0.1:19093"),
        (3, "127.0.0.1:19094"),
    ]


@pytest.mark.parametrize(
    ("arguments", "listens", "advertised", "controller"),
    [
        ((), "PLAINTEXT://127.0.0.1:9092", "127.0.0.1:9092", "127.0.0.1:20000"),
        (("--host", "0.0.0.0"), "PLAINTEXT://0.0.0.0:9092", "127.0.0.1:9092", "127.0.0.1:20000"),
        (
            ("--host", "0.0.0.0", "--advertised-host", "milena"),
            "PLAINTEXT://0.0.0.0:9092",
            "milena:9092",
            "127.0.0.1:20000",
        ),
        (("--host", "::1"), "PLAINTEXT://[::1]:9092", "[::1]:9092", "[::1]:20000"),
    ],
)
def test_listeners_have_the_given_hosts(
    tmp_path: Path, arguments: tuple[str, ...], listens: str, advertised: str, controller: str
) -> None:
    settings = settings_of("--brokers", "1", *arguments)
    leader, broker = nodes_of(ClusterDir(str(tmp_path)), settings)
    write_properties(settings, broker, leader)
    written = from_properties(Path(broker.properties).read_bytes(), "file")
    assert written["listeners"].value == listens
    assert written["advertised.listeners"].value == f"PLAINTEXT://{advertised}" and broker.address == advertised
    assert written["controller.quorum.voters"].value == f"100@{controller}"


def test_nodes_accept_the_properties_files_and_overrides_take_precedence(tmp_path: Path) -> None:
    settings = settings_of("--override", "offsets.topic.replication.factor=1", "--override", "num.partitions=4")
    controller, *brokers = nodes_of(ClusterDir(str(tmp_path / "ä b")), settings)
    for node in (controller, *brokers):
        write_properties(settings, node, controller)
        config = NodeConfig(from_properties(Path(node.properties).read_bytes(), "file"))
        assert (config.node_id, set(config.roles), list(config.log_dirs)) == (node.id, {node.role}, [node.data])
        assert config.get("num.partitions") == 4
        assert config.get("offsets.topic.replication.factor") == 1
        assert config.quorum_voters == {100: ("127.0.0.1", 20_000)}


@pytest.mark.parametrize(("brokers", "replicas", "least"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_the_internal_topics_fit_the_number_of_brokers(tmp_path: Path, brokers: int, replicas: int, least: int) -> None:
    settings = settings_of("--brokers", str(brokers))
    controller, *nodes = nodes_of(ClusterDir(str(tmp_path)), settings)
    for node in nodes:
        properties = properties_of(settings, node, controller)
        assert int(properties["offsets.topic.replication.factor"]) == replicas
        assert int(properties["transaction.state.log.replication.factor"]) == replicas
        assert int(properties["transaction.state.log.min.isr"]) == least


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        ((), {"rsm.config.dir": "{folder}/remote", "remote.log.storage.manager.class.name": LOCAL}),
        (("--tier", "/t"), {"rsm.config.dir": "/t", "remote.log.storage.manager.class.name": LOCAL}),
        (("--tier", "file:///t/"), {"rsm.config.dir": "/t", "remote.log.storage.manager.class.name": LOCAL}),
        (("--tier", "s3://b/p"), {"rsm.config.url": "s3://b/p", "remote.log.storage.manager.class.name": FSSPEC}),
    ],
)
@pytest.mark.parametrize(("brokers", "copies"), [("1", "1"), ("2", "2"), ("5", "3")])
def test_brokers_have_a_tier_and_at_most_three_replicas_of_its_metadata(
    tmp_path: Path, arguments: tuple[str, ...], keys: dict[str, str], brokers: str, copies: str
) -> None:
    settings = settings_of("--brokers", brokers, *arguments)
    controller, broker, *_ = nodes_of(ClusterDir(str(tmp_path)), settings)
    write_properties(settings, controller, controller)
    write_properties(settings, broker, controller)
    config = NodeConfig(from_properties(Path(broker.properties).read_bytes(), "file"))
    found = {f"rsm.config.{key}": value for key, value in config.under("rsm.config.").items()}
    found["remote.log.storage.manager.class.name"] = config.get_str("remote.log.storage.manager.class.name")
    assert found == {key: value.format(folder=tmp_path) for key, value in keys.items()}
    assert MetadataTopicSettings.of(config.under("rlmm.config.")).replication_factor == int(copies)
    controller_config = NodeConfig(from_properties(Path(controller.properties).read_bytes(), "file"))
    assert config.get(ENABLED) is True and controller_config.get(ENABLED) is True


def test_a_tier_can_be_disabled_and_enabled_again(tmp_path: Path) -> None:
    cluster = ClusterDir(str(tmp_path))
    save(cluster, settings_of("--no-tier"))
    settings = load(cluster)
    settings.controller_port = 1
    controller, broker, *_ = nodes_of(cluster, settings)
    write_properties(settings, broker, controller)
    assert not NodeConfig(from_properties(Path(broker.properties).read_bytes(), "file")).get(ENABLED)
    settings.take(COMMAND.parse(["--tier", "relative"]))
    assert settings.tier == str(Path("relative").absolute())


@given(st.text(st.characters(exclude_characters="".join(map(chr, range(0xD800, 0xE000))), max_codepoint=0xFFFF)))
def test_any_value_is_unchanged_after_writing_and_reading_a_properties_file(value: str) -> None:
    read = from_properties(f"key={escaped(value)}\n".encode("latin-1"), "file")["key"].value
    assert read == value


def test_the_cluster_of_a_properties_file_is_found(tmp_path: Path) -> None:
    cluster = ClusterDir(str(tmp_path))
    assert cluster_of(cluster.properties("broker-1")) is None
    save(cluster, settings_of())
    found = cluster_of(cluster.properties("broker-1"))
    assert found is not None and found.path == str(tmp_path)


def test_a_comma_in_the_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot have a comma"):
        ClusterDir(str(tmp_path / "a,b"))


def test_cluster_ids_have_kafkas_format() -> None:
    ids = {draw_cluster_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(len(text) == 22 and not text.startswith("-") and not set(text) & set("+/=") for text in ids)


@pytest.mark.parametrize(
    ("text", "parts"), [("t", ("t", "1", "1")), ("t:6", ("t", "6", "1")), ("t:6:3", ("t", "6", "3"))]
)
def test_topics_of_the_command_line_are_parsed(text: str, parts: tuple[str, str, str]) -> None:
    assert topic(text) == parts


@pytest.mark.parametrize("text", ["", ":1:1", "t:0", "t:x", "t:1:1:1", "t:1:-1"])
def test_an_invalid_topic_of_the_command_line_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="name:partitions:replicas"):
        topic(text)


def test_files_that_may_contain_credentials_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    cluster = ClusterDir(str(tmp_path))
    for path in (cluster.settings, f"{cluster.settings}.tmp"):
        Path(path).write_text("override=rsm.config.key=secret\n")
        Path(path).chmod(0o644)
    settings = settings_of("--override", "rsm.config.key=secret")
    save(cluster, settings)
    controller, *brokers = nodes_of(cluster, settings)
    for node in (controller, *brokers):
        write_properties(settings, node, controller)
    for path in (cluster.settings, *(node.properties for node in (controller, *brokers))):
        assert Path(path).stat().st_mode & 0o777 == 0o600, path
