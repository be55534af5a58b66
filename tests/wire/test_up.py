"""`milena up`: its output, the places of its files, its errors, and the options that it remembers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from milena.command_line.errors import UserError
from milena.testing.local_cluster import LIMIT, MILENA, LocalCluster
from milena.up.ports import free
from tests.wire.command import Said, milena, refused, without_kafka
from tests.wire.raw import answers


class Life(NamedTuple):
    """A cluster of three brokers from its start to Ctrl-C."""

    directory: Path
    elsewhere: Path
    """The working directory of the command."""
    addresses: list[str]
    ready_line: str
    nodes: list[dict[str, object]]
    """nodes.json at the time of the ready line."""
    answered: list[bool]
    topic: Said
    """Output of the creation of a topic with three replicas right after the ready line."""
    output: str
    errors: str
    code: int
    files: set[str]
    """All files below the directory afterwards."""
    logs: dict[str, list[dict[str, object]]]
    """The events that each node has logged."""
    nodes_at_end: list[dict[str, object]]


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    directory, elsewhere = tmp_path_factory.mktemp("life"), tmp_path_factory.mktemp("elsewhere")
    port = free("127.0.0.1", 3)[0]
    up = subprocess.Popen(
        [*MILENA, "up", "--dir", str(directory), "--port", str(port), "--topic", "early:4:3"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=elsewhere,
        env={**os.environ, "HOME": str(elsewhere), "TMPDIR": str(elsewhere)},
    )  # fmt: skip
    assert up.stdout is not None
    line = up.stdout.readline()
    addresses = [f"127.0.0.1:{port + index}" for index in range(3)]
    topic = milena("topic", "create", "at-once", "--replicas", "3", "-b", addresses[2])
    nodes = json.loads((directory / "nodes.json").read_text())
    answered = [answers(address) for address in addresses]
    milena("produce", "early", "-b", addresses[0], stdin="one\n")
    up.send_signal(signal.SIGINT)
    output, errors = up.communicate(timeout=LIMIT)
    return Life(
        directory, elsewhere, addresses, line, nodes, answered, topic, output, errors, up.returncode,
        {str(path.relative_to(directory)) for path in directory.rglob("*")},
        {log.stem: events_of(log) for log in directory.glob("logs/*-*.log")},
        json.loads((directory / "nodes.json").read_text()),
    )  # fmt: skip


def events_of(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_standard_output_has_only_the_ready_line(life: Life) -> None:
    assert life.ready_line == f"ready bootstrap={','.join(life.addresses)}\n"
    assert life.answered == [True] * 3
    assert (life.output, life.code) == ("", 0)


def test_the_ready_line_comes_when_all_brokers_are_unfenced(life: Life) -> None:
    """A topic with three replicas can be created at once."""
    assert life.topic.out == "at-once: 1 partition\n"


def test_standard_error_has_a_plain_line_for_each_step(life: Life) -> None:
    lines = life.errors.splitlines()
    names = ["controller-100", "broker-1", "broker-2", "broker-3"]
    assert [line.split(" at ")[0] for line in lines[:4]] == [f"{name} starting" for name in names]
    assert sorted(line.split(" at ")[0] for line in lines[4:-1]) == sorted(f"{name} ready" for name in names)
    assert lines[-1] == "stopped"
    assert "\x1b" not in life.errors


def test_nodes_json_lists_every_node(life: Life) -> None:
    controller = life.nodes[3]
    assert [node["id"] for node in life.nodes] == [1, 2, 3, 100]
    for node, address in zip(life.nodes, life.addresses, strict=False):
        assert isinstance(node["pid"], int)
        assert node == {
            "id": node["id"],
            "roles": ["broker"],
            "pid": node["pid"],
            "listeners": {"PLAINTEXT": address},
            "log.dirs": [str(life.directory / f"broker-{node['id']}" / "data")],
            "ready": True,
        }
    assert set(controller) == {"id", "roles", "pid", "listeners", "log.dirs", "ready"}
    assert controller["roles"] == ["controller"]


def test_all_files_are_below_the_directory(life: Life) -> None:
    assert not list(life.elsewhere.iterdir())
    nodes = {"broker-1", "broker-2", "broker-3", "controller-100"}
    logs = {f"logs/{name}.log" for name in nodes}
    beside = {name for name in life.files if name.split("/")[0] not in nodes and not name.startswith(".")}
    assert beside == {"logs", *logs, "nodes.json", "nodes.json.lock", "settings"}, "a tier begins with its first copy"
    assert {f"{name}/server.properties" for name in nodes} <= life.files


def test_the_remote_log_metadata_topic_does_not_exist_before_a_topic_is_tiered(life: Life) -> None:
    assert not [name for name in life.files if "__remote_log_metadata" in name]


def test_a_nodes_log_is_json_lines_with_time_level_component_and_event(life: Life) -> None:
    assert len(life.logs) == 4
    for events in life.logs.values():
        assert events
        assert all(list(event)[:4] == ["timestamp", "level", "component", "event"] for event in events)


def test_ctrl_c_shuts_the_brokers_down_cleanly_and_then_the_controller(life: Life) -> None:
    stopped = {}
    for name, events in life.logs.items():
        (event,) = [event for event in events if event["event"] == "node stops"]
        assert event["reason"] == "SIGTERM"
        stopped[str(event["timestamp"])] = name
    assert stopped[max(stopped)] == "controller-100"
    assert {f"broker-{number}/data/.kafka_cleanshutdown" for number in (1, 2, 3)} <= life.files
    assert [node["pid"] for node in life.nodes_at_end] == [None] * 4


def test_a_second_start_in_the_directory_has_the_same_options_and_data(life: Life) -> None:
    where = ("--dir", str(life.directory))
    assert milena("up", "--detach", *where).out == life.ready_line
    try:
        found = milena("consume", "early", "--from-beginning", "--exit", "-b", life.addresses[1])
        assert found.out == "one\n"
        assert "at-once" in milena("topic", "list", "-b", life.addresses[0]).out
    finally:
        milena("down", *where)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One broker on all addresses, in a directory whose name needs escapes, with an environment variable to ignore."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_NUM_PARTITONS", "3")
        running = LocalCluster.start(
            tmp_path_factory.mktemp("one") / "a b" / "ö",
            overrides={"num.partitions": "7"},
            topics=["only-here:4:1", "with-defaults"],
            options=["--host", "0.0.0.0", "--advertised-host", "localhost"],
        )
    with running:
        yield running


def test_clients_get_the_advertised_host(one: LocalCluster) -> None:
    host, _, port = one.bootstrap.rpartition(":")
    assert host == "localhost"
    assert answers(f"127.0.0.1:{port}")
    assert one.nodes[1].listeners == {"PLAINTEXT": f"localhost:{port}"}
    milena("produce", "only-here", "-b", f"127.0.0.1:{port}", stdin="by way of localhost\n")
    assert "by way of localhost" in milena("consume", "only-here", "--from-beginning", "-e", "-b", one.bootstrap).out


def test_topics_of_the_command_line_have_the_given_partitions(one: LocalCluster) -> None:
    assert " partitions 4" in milena("topic", "describe", "only-here", "-b", one.bootstrap).out
    assert " partitions 1" in milena("topic", "describe", "with-defaults", "-b", one.bootstrap).out


def test_an_override_reaches_the_brokers(one: LocalCluster) -> None:
    assert milena("topic", "create", "seven", "-b", one.bootstrap).out == "seven: 7 partitions\n"


def test_a_directory_name_may_have_spaces_and_umlauts(one: LocalCluster) -> None:
    assert one.directory.endswith("a b/ö")
    assert one.nodes[1].log_dirs == (f"{one.directory}/broker-1/data",)
    assert Path(one.nodes[1].log_dirs[0], "meta.properties").exists()


def test_clusters_run_side_by_side(one: LocalCluster, cluster: LocalCluster) -> None:
    assert "only-here" in milena("topic", "list", "-b", one.bootstrap).out
    assert "only-here" not in milena("topic", "list", "-b", cluster.bootstrap).out


def test_a_locked_directory_is_a_one_line_error(one: LocalCluster) -> None:
    assert refused("up", "--dir", one.directory) == (
        f"{one.directory} is in use by another `milena up` (milena down --dir {one.directory} stops it)"
    )
    assert refused("up", "--detach", "--dir", one.directory).startswith(f"{one.directory} is in use")


def test_a_port_in_use_is_a_one_line_error(tmp_path: Path) -> None:
    first = free("127.0.0.1", 3)[0]
    with socket.create_server(("127.0.0.1", first + 1)):
        said = refused("up", "--dir", str(tmp_path), "--port", str(first))
    assert said == (
        f"port {first + 1} on 127.0.0.1 is in use: stop the process that listens there, or choose other "
        "ports with --port"
    )
    assert not list(tmp_path.glob("broker-*"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--topic", "bad name:1:1"],
            "--topic bad name: topic bad name: The topic name 'bad name' has other characters",
        ),
        (["--topic", "t:1:2"], "--topic t: topic t: Cannot place 2 replica(s): only 1 broker(s) can take replicas."),
        (["--feature", "nonsense=1"], "--feature 'nonsense' is unknown; known are metadata.version"),
        (["--release-version", "9.9"], "--release-version: unknown release version '9.9'; known are 3.3"),
        (["--release-version", "4.4", "--kafka-version", "4.3"], "--release-version 4.4: kafka.version is 4.3"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_error_of_a_node_is_printed_and_no_process_is_left(
    tmp_path: Path, options: list[str], sentence: str
) -> None:
    assert sentence in refused("up", "--dir", str(tmp_path), "--port", "0", "--brokers", "1", *options)
    assert [node["pid"] for node in json.loads((tmp_path / "nodes.json").read_text())] == [None] * 2


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        (
            "num.partitons=3",
            "--override num.partitons: unknown configuration key 'num.partitons'; did you mean 'num.partitions'?",
        ),
        (
            "num.partitions=x",
            "--override num.partitions: Invalid value x for configuration num.partitions: Not a number of type INT",
        ),
    ],
)
def test_a_bad_override_is_reported_before_any_node_starts(tmp_path: Path, override: str, sentence: str) -> None:
    up = ("up", "--dir", str(tmp_path), "--port", "0", "--brokers", "1")
    assert milena(*up, "--override", override, code=1).err == f"milena: {sentence}\n"
    assert not list(tmp_path.glob("*/server.properties"))


def test_brokers_with_data_that_are_not_started_are_named(tmp_path: Path) -> None:
    LocalCluster.start(tmp_path, brokers=2).stop()
    LocalCluster.start(tmp_path, brokers=1).stop()
    said = (tmp_path / "up.stderr").read_text().splitlines()
    assert said[0] == "warning: --brokers 1: these nodes have data here but are not started: broker-2"


def test_options_with_which_no_node_could_start_are_not_remembered(tmp_path: Path) -> None:
    """Options that are not given are those of the last start, except for options with which `milena up` failed."""
    up = ("up", "--dir", str(tmp_path), "--port", "0", "--brokers", "1")
    assert "did you mean 'log.retention.hours'?" in refused(*up, "--override", "log.retention.hour=1")
    LocalCluster.start(tmp_path, brokers=1).stop()
    refusal = refused(*up, "--cluster-id", "another")
    assert re.search("belongs? to cluster", refusal), "by the controller or the broker, whichever ends first"
    LocalCluster.start(tmp_path, brokers=1).stop()


@pytest.mark.parametrize(
    ("options", "sentence", "code"),
    [
        (["--brokers", "many"], "--brokers many: not a whole number", 2),
        (["--brokers", "0"], "--brokers 0: a cluster needs at least one broker", 1),
        (["--port", "65534"], "--port 65534: 3 ports from there on exceed 65535", 1),
        (["--brokrs", "1"], "unknown option --brokrs (did you mean --brokers?); `milena up --help` lists them", 2),
        (["--topic", "t:0"], "--topic t:0: write it as name:partitions:replicas, as in orders:6:1", 2),
        (["--override", "x"], "--override x: write it as key=value", 2),
        (
            ["--override", "node.id=7"],
            "--override node.id: `milena up` sets it for each node; to set it, run single nodes with `milena node`",
            1,
        ),
        (["--host", "nowhere.invalid"], "--host nowhere.invalid: ", 1),
        (["now"], "milena up does not take 'now'; `milena up --help` lists what it does take", 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_option_is_a_one_line_error(tmp_path: Path, options: list[str], sentence: str, code: int) -> None:
    assert refused("up", "--dir", str(tmp_path), *options, code=code).startswith(sentence)


def test_an_impossible_directory_is_a_one_line_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert refused("up", "--dir", str(file)) == f"cannot read {file}/settings: Not a directory"
    assert refused("up", "--dir", str(tmp_path / "a,b")).startswith(f"{tmp_path}/a,b: a cluster's directory cannot")


def test_the_folder_of_a_node_is_refused_as_cluster_directory(life: Life) -> None:
    node = life.directory / "broker-1"
    before = sorted(node.iterdir())
    for inside, file in ((node, "server.properties"), (node / "data", "meta.properties")):
        for how in ([], ["--detach"]):
            said = refused("up", "--port", "0", "--dir", str(inside), *how)
            assert said == f"{inside} is a node's folder (it has {file}): name another folder with --dir"
    assert sorted(node.iterdir()) == before


def test_a_topic_that_exists_with_other_counts_is_warned_of(tmp_path: Path) -> None:
    up = ("up", "--detach", "--brokers", "1", "--port", "0", "--dir", str(tmp_path))
    try:
        assert milena(*up, "--topic", "t:2:1").err == ""
        milena("down", "--dir", str(tmp_path))
        assert milena(*up, "--topic", "t:2:1").err == ""
        milena("down", "--dir", str(tmp_path))
        assert milena(*up, "--topic", "t:6:3").err.splitlines() == [
            "warning: --topic t: t has 2 partitions already, not 6",
            "warning: --topic t: t has replication factor 1 already, not 3",
        ]
    finally:
        milena("down", "--dir", str(tmp_path))


def test_a_cluster_that_does_not_start_raises_the_reason_in_python(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"milena up: milena: --override listeners: `milena up` sets it"):
        LocalCluster.start(tmp_path, overrides={"listeners": "X://:1"})


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_a_cluster_listens_on_ipv6(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no ::1")
    with LocalCluster.start(tmp_path, options=["--host", "::1"]) as running:
        assert running.bootstrap.startswith("[::1]:")
        assert milena("topic", "create", "six", "-b", running.bootstrap).out == "six: 1 partition\n"


def test_help_shows_examples_and_every_command() -> None:
    text = milena("--help", env=without_kafka()).out
    assert "milena up --brokers 1 --port 19092" in text
    commands = [line.split()[0] for line in text.split("Examples:")[0].splitlines() if line.startswith("  ")]
    for name in commands:
        assert milena(name, "--help").out.startswith(f"usage: milena {name}")
