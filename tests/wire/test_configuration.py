"""`milena node`: configuration from files, environment variables and arguments, as in Kafka and its image."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from milena.storage.files.meta_properties import decode_meta_properties
from milena.up.ports import free
from tests.wire.command import Node, milena, node, refused, without_kafka
from tests.wire.properties import combined, variables, write
from tests.wire.raw import answers

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def without_effect(log: Path) -> list[str]:
    """Return what a node logged about configuration keys without effect."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return [event["event"] for event in events if "without effect" in event["event"]]


@pytest.fixture(scope="module")
def from_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A combined node with three log directories and with keys without effect."""
    folder = tmp_path_factory.mktemp("from-file")
    values = combined(folder) | {
        "log.dirs": f"{folder}/a,{folder}/b , {folder}/c",
        "num.partitions": 2,
        "log.retention.hours": 48,
        "metric.reporters": "com.example.Reporter",
        "rsm.config.bucket": "free",
        "rlmm.config.whatever": "free",
        "listener.name.plaintext.anything": "free",
    }
    environment = without_kafka() | variables({"num.partitions": 3, "log.segment.bytes": 2_000_000})
    with node(folder, write(folder, values), "--override", "num.partitions=4", env=environment) as running:
        yield running


def test_a_combined_node_serves_both_listeners(from_file: Node) -> None:
    assert set(from_file.listeners) == {"PLAINTEXT", "CONTROLLER"}
    assert all(map(answers, from_file.listeners.values()))
    milena("topic", "create", "from-file", "-b", from_file.address)
    milena("produce", "from-file", "-b", from_file.address, stdin="here\n")
    found = milena("consume", "from-file", "--group", "g", "--from-beginning", "--max", "1", "-b", from_file.address)
    assert found.out == "here\n"


def test_arguments_override_variables_and_variables_override_the_file(from_file: Node) -> None:
    admin = AdminClient({"bootstrap.servers": from_file.address, "log_level": 0})
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    configs = admin.describe_configs([resource])[resource].result(30)
    shown = {key: configs[key].value for key in ("num.partitions", "log.segment.bytes", "log.retention.hours")}
    assert shown == {"num.partitions": "4", "log.segment.bytes": "2000000", "log.retention.hours": "48"}


def test_a_key_without_effect_is_warned_of_once_and_keys_with_free_prefixes_are_not(from_file: Node) -> None:
    file = from_file.log.parent / "server.properties"
    line = 1 + file.read_text().splitlines().index("metric.reporters=com.example.Reporter")
    assert without_effect(from_file.log) == [f"keys not supported yet, without effect: {file}:{line}: metric.reporters"]


def test_each_log_directory_has_its_own_id_and_partitions_are_spread_over_them(from_file: Node) -> None:
    milena("topic", "create", "spread", "--partitions", "9", "-b", from_file.address)
    folders = [from_file.log.parent / name for name in "abc"]
    assert sum(len(list(folder.glob("spread-*"))) for folder in folders) == 9
    logs = [len(list(folder.glob("*-*/partition.metadata"))) for folder in folders]
    assert max(logs) - min(logs) <= 1
    metas = [decode_meta_properties((folder / "meta.properties").read_bytes()) for folder in folders]
    assert len({meta.directory_id for meta in metas}) == 3
    assert len({meta.cluster_id for meta in metas}) == 1
    assert {meta.node_id for meta in metas} == {1}
    assert [folder.name for folder in folders if (folder / "__cluster_metadata-0").exists()] == ["a"]


@pytest.fixture(scope="module")
def from_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node as in a compose file: without a properties file, with two named listeners and the controller's."""
    folder = tmp_path_factory.mktemp("from-environment")
    inside, outside, controller = free("127.0.0.1", 3)
    environment = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"INSIDE://127.0.0.1:{inside},OUTSIDE://:{outside},CONTROLLER://127.0.0.1:{controller}",
        "KAFKA_ADVERTISED_LISTENERS": f"INSIDE://127.0.0.1:{inside},OUTSIDE://localhost:{outside}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@localhost:{controller}",
        "KAFKA_LOG_DIRS": str(folder / "data"),
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_LISTENER_NAME_INSIDE_ANYTHING": "free",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_JMX_PORT": "9999",
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
        "CLUSTER_ID": CLUSTER_ID,
    }
    with node(folder, env=without_kafka() | environment) as running:
        yield running


def test_a_node_can_be_configured_by_environment_variables_alone(from_environment: Node) -> None:
    inside = from_environment.listeners["INSIDE"]
    assert milena("topic", "create", "of-the-environment", "-b", inside).out == "of-the-environment: 3 partitions\n"
    meta = decode_meta_properties((from_environment.log.parent / "data" / "meta.properties").read_bytes())
    assert meta.cluster_id == CLUSTER_ID
    assert without_effect(from_environment.log) == []


def test_each_listener_returns_its_own_advertised_address(from_environment: Node) -> None:
    inside = from_environment.listeners["INSIDE"]
    port = from_environment.listeners["OUTSIDE"].rpartition(":")[2]
    outside = f"localhost:{port}"
    for address in (inside, outside):
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        (broker,) = admin.list_topics(timeout=30).brokers.values()
        assert f"{broker.host}:{broker.port}" == address


def test_brokers_connect_to_each_other_on_the_inter_broker_listener(from_environment: Node, tmp_path: Path) -> None:
    """A second broker with other listener names joins the cluster."""
    inside, outside = free("127.0.0.1", 2)
    controller = from_environment.listeners["CONTROLLER"]
    values = {
        "node.id": 2,
        "process.roles": "broker",
        "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller,
        "log.dirs": tmp_path / "data",
    }
    with node(tmp_path, write(tmp_path, values), env=without_kafka()):
        admin = AdminClient({"bootstrap.servers": from_environment.listeners["INSIDE"], "log_level": 0})
        brokers = {broker.id: broker.port for broker in admin.list_topics(timeout=30).brokers.values()}
        assert brokers[2] == inside
    meta = decode_meta_properties((tmp_path / "data" / "meta.properties").read_bytes())
    assert meta.cluster_id == CLUSTER_ID  # known from the controller


def test_a_directory_of_another_cluster_or_node_is_refused(from_file: Node, tmp_path: Path) -> None:
    values = combined(tmp_path)
    with node(tmp_path, write(tmp_path, values), "--cluster-id", CLUSTER_ID, env=without_kafka()):
        pass
    other = refused("node", write(tmp_path, values), "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA")
    assert other == f"{tmp_path}/data belongs to cluster {CLUSTER_ID}, not AAAAAAAAAAAAAAAAAAAAAA"
    controller = str(values["controller.quorum.voters"]).partition("@")[2]
    changed = write(tmp_path, values | {"node.id": 7, "controller.quorum.voters": f"7@{controller}"})
    assert refused("node", changed) == f"{tmp_path}/data belongs to node 1, not 7"
    taken = write(tmp_path, values | {"log.dirs": from_file.log.parent / "b"})
    assert refused("node", taken) == f"log directory {from_file.log.parent}/b is in use by another process"


def test_a_new_cluster_has_the_requested_feature_levels(tmp_path: Path) -> None:
    with node(tmp_path, write(tmp_path, combined(tmp_path)), "--release-version", "4.1", env=without_kafka()):
        pass
    bootstrap = milena("log", "dump", str(tmp_path / "data" / "bootstrap.checkpoint")).out
    assert "metadata.version" in bootstrap
    assert "27" in bootstrap


WRONG = [
    ("num.partitions", "many", "Invalid value many for configuration num.partitions: Not a number of type INT"),
    ("log.segment.bytes", "1", "Invalid value 1 for configuration log.segment.bytes: Value must be at least"),
]


@pytest.mark.parametrize(("key", "value", "sentence"), WRONG, ids=[key for key, _, _ in WRONG])
def test_the_error_of_a_wrong_key_names_its_file_or_variable(
    tmp_path: Path, key: str, value: str, sentence: str
) -> None:
    good = combined(tmp_path)
    file = write(tmp_path, good)
    assert refused("node", file, "--override", f"{key}={value}").startswith(f"--override {key}: {sentence}")
    (variable,) = variables({key: value}).items()
    said = refused("node", file, env=without_kafka() | dict([variable]))
    assert said.startswith(f"environment variable {variable[0]}: {sentence}")
    write(tmp_path, good | {key: value})
    assert refused("node", file).startswith(f"{file}:{len(good) + 1}: {sentence}")


MISSPELT = "unknown configuration key 'num.partitons'; did you mean 'num.partitions'?"


def test_unknown_keys_of_files_and_variables_are_one_warning_and_a_near_miss_is_printed(tmp_path: Path) -> None:
    values = combined(tmp_path) | {"num.partitons": 3, "confluent.license": "x"}
    file = write(tmp_path, values)
    environment = without_kafka() | {"KAFKA_CFG_NODE_ID": "1", "KAFKA_PORT": "tcp://10.0.0.1:9092"}
    with node(tmp_path, file, env=environment) as running:
        lines = running.log.read_text().splitlines()
    here = f"{file}:{len(values) - 1}: "
    assert lines[0] == f"milena: {here}{MISSPELT}"
    assert [json.loads(line)["event"] for line in lines if '"warning"' in line and "effect" in line] == [
        f"unknown keys, without effect: {here}num.partitons (did you mean num.partitions?); "
        f"{file}:{len(values)}: confluent.license (a key of Confluent Server); environment variable KAFKA_CFG_NODE_ID: "
        "cfg.node.id (Bitnami's name; here the variable is KAFKA_NODE_ID)"
    ]


@pytest.mark.parametrize("level", ["warning", "error"])
def test_that_nothing_is_protected_is_said_once_at_any_log_level(tmp_path: Path, level: str) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    file = write(tmp_path, combined(tmp_path) | {"authorizer.class.name": authorizer})
    with node(tmp_path, file, "--log-level", level, env=without_kafka() | {"MILENA_UNPROTECTED": "1"}) as running:
        lines = running.log.read_text().splitlines()
    assert len([line for line in lines if "no protection: every client may do everything" in line]) == 1


def test_a_near_miss_is_repeated_after_the_reason_of_an_end(tmp_path: Path) -> None:
    values = combined(tmp_path) | {"num.partitons": 3}
    near = f"milena: {tmp_path}/server.properties:{len(values)}: {MISSPELT}"
    wrong = milena("node", write(tmp_path, values | {"node.id": "x"}), code=1, env=without_kafka()).err.splitlines()
    assert wrong == [near, f"milena: {wrong[1].removeprefix('milena: ')}", near]
    assert "Invalid value x for configuration node.id" in wrong[1]
    occupied = write(tmp_path, values | {"log.dirs": "/proc/nothing"})
    while_running = milena("node", occupied, code=1, env=without_kafka()).err.splitlines()
    assert while_running[-2:] == ["milena: /proc/nothing: No such file or directory", near]


def test_unknown_keys_are_an_error_for_options_and_where_the_user_wants_it(tmp_path: Path) -> None:
    good = combined(tmp_path)
    option = refused("node", write(tmp_path, good), "--override", "num.partitons=3")
    assert option == f"--override num.partitons: {MISSPELT}"
    file = write(tmp_path, good | {"confluent.license": "x"})
    said = refused("node", file, env=without_kafka() | {"MILENA_STRICT_CONFIG": "1"})
    listed = f"{file}:{len(good) + 1}: confluent.license (a key of Confluent Server)"
    assert said == f"MILENA_STRICT_CONFIG is set, and keys are unknown: {listed}"
    checked = milena("config", "check", file, code=1)
    assert checked == (f"unknown: {listed}\n", f"milena: {file}: 1 unknown key\n")
    valid = milena("config", "check", write(tmp_path, good))
    assert valid == (f"{file}: valid, node 1 as broker and controller\n", "")
    environment = without_kafka() | {"KAFKA_QUERTZ": "1"}
    by_both = milena("config", "check", file, "--environment", code=1, env=environment)
    assert by_both.out == "unknown: environment variable KAFKA_QUERTZ: quertz\n"
    wrong = refused("config", "check", write(tmp_path, good | {"node.id": "x"}))
    assert "Invalid value x for configuration node.id" in wrong


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"listeners": "SASL_SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:1"}, "No security protocol defined for listener"),
        (
            {
                "listeners": "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:1",
                "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "SSL",
            },
            "listener SSL has protocol SSL, which is not supported yet: only PLAINTEXT is",
        ),
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, "controller.listener.names must only contain values appearing in"),
        ({"listeners": "PLAINTEXT://nowhere.invalid:0,CONTROLLER://127.0.0.1:0"}, "cannot resolve 'nowhere.invalid'"),
        ({"listeners": "PLAINTEXT:127.0.0.1"}, "Unable to parse PLAINTEXT:127.0.0.1 to a broker endpoint"),
        ({"process.roles": "zookeeper"}, "Invalid value zookeeper for configuration process.roles"),
        ({"controller.quorum.voters": "2@127.0.0.1:1"}, "the node id 1 must be included in the set of voters"),
        ({"log.dirs": "/proc/nothing"}, "/proc/nothing: No such file or directory"),
        ({"inter.broker.listener.name": "INSIDE"}, "INSIDE defined in inter.broker.listener.name not found in"),
        ({"inter.broker.listener.name": "SSL"}, "inter.broker.listener.name must be a listener name defined in"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_contradictory_settings_are_a_one_line_error(tmp_path: Path, changes: dict[str, str], sentence: str) -> None:
    assert sentence in refused("node", write(tmp_path, combined(tmp_path) | changes), env=without_kafka())


def test_a_file_that_cannot_be_read_is_a_one_line_error(tmp_path: Path) -> None:
    assert refused("node", str(tmp_path / "no.properties")) == f"{tmp_path}/no.properties: No such file or directory"
    assert refused("node", str(tmp_path)) == f"{tmp_path}: Is a directory"
    (tmp_path / "bad.properties").write_text("a=\\u12\n")
    assert refused("node", str(tmp_path / "bad.properties")) == f"{tmp_path}/bad.properties:1: malformed \\uxxxx escape"
    nothing = refused("node", env=without_kafka())
    assert nothing.startswith(
        'Missing required configuration "node.id" which has no default value. A single node needs'
    )
    assert refused("node", "--log-level", "loud", str(tmp_path / "x")).startswith("--log-level: log level 'loud'")
