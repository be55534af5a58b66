"""`milena up`: what it prints, what it keeps true, what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from milena.errors import UserError
from milena.local_cluster import MILENA, LocalCluster, runs
from milena.up.ports import free
from tests.wire.raw import answers

StartCluster = Callable[..., LocalCluster]


def milena(*arguments: str, code: int = 0) -> str:
    """Run a command to its end; what it printed on both outputs."""
    done = subprocess.run([*MILENA, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_standard_output_has_the_ready_line_alone(tmp_path: Path) -> None:
    port = free("127.0.0.1", 3)[0]
    up = subprocess.Popen(
        [*MILENA, "up", "--dir", str(tmp_path), "--port", str(port)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert up.stdout is not None
    addresses = [f"127.0.0.1:{port + index}" for index in range(3)]
    assert up.stdout.readline() == f"ready bootstrap={','.join(addresses)}\n"
    assert all(map(answers, addresses))
    up.send_signal(signal.SIGINT)
    output, errors = up.communicate(timeout=60)
    assert (output, up.returncode) == ("", 0)
    assert "broker-1 ready" in errors and "stopped" in errors


def test_nodes_json_is_true_while_nodes_come_and_go(milena_start: StartCluster) -> None:
    cluster = milena_start(brokers=2, overrides={"broker.session.timeout.ms": "1000"})
    listing = json.loads(Path(cluster.directory, "nodes.json").read_text())
    assert [set(entry) for entry in listing] == [{"id", "roles", "pid", "listeners", "log.dirs"}] * 3
    before = cluster.nodes
    assert all(node.pid and runs(node.pid) for node in before.values())
    assert ",".join(node.listeners["PLAINTEXT"] for node in cluster.brokers) == cluster.bootstrap
    cluster.kill(2)
    assert cluster.nodes[2].pid is None
    cluster.restart(2)
    after = cluster.nodes
    assert after[2]._replace(pid=None) == before[2]._replace(pid=None)
    assert after[2].pid not in (None, before[2].pid)
    controller = cluster.controller.id
    assert (after[1], after[controller]) == (before[1], before[controller])
    cluster.stop()
    assert [node.pid for node in cluster.nodes.values()] == [None] * 3


def test_a_controller_comes_back_too(milena_start: StartCluster) -> None:
    cluster = milena_start()
    cluster.kill(cluster.controller.id)
    cluster.restart(cluster.controller.id)
    milena("topic", "create", "after", "--bootstrap-server", cluster.bootstrap)


def test_the_nodes_end_when_their_supervisor_is_killed(milena_start: StartCluster) -> None:
    cluster = milena_start(brokers=2, overrides={"broker.session.timeout.ms": "1000"})
    cluster.kill(1)
    cluster.restart(1)  # this one is no child of `milena up`, and belongs to it all the same
    cluster.kill_supervisor()
    again = milena_start(directory=cluster.directory, brokers=2)
    assert all(map(answers, again.bootstrap.split(",")))


def test_clusters_run_side_by_side(milena_start: StartCluster) -> None:
    one, other = milena_start(topics=["in-one:1:1"]), milena_start(topics=["in-other:1:1"])
    assert "in-one" in milena("topic", "list", "-b", one.bootstrap)
    assert "in-one" not in milena("topic", "list", "-b", other.bootstrap)


def test_a_locked_directory_is_one_sentence(milena_start: StartCluster) -> None:
    cluster = milena_start()
    said = milena("up", "--dir", cluster.directory, code=1)
    assert said.splitlines() == [
        f"milena: {cluster.directory} is in use by another `milena up` (milena down --dir {cluster.directory} stops it)"
    ]


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    first = free("127.0.0.1", 3)[0]
    with socket.create_server(("127.0.0.1", first + 1)):
        said = milena("up", "--dir", str(tmp_path), "--port", str(first), code=1)
    assert said.splitlines() == [
        f"milena: port {first + 1} on 127.0.0.1 is in use: stop what listens there, or choose others with --port"
    ]
    assert not list(tmp_path.glob("broker-*"))


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("num.partitons=3", "unknown configuration key 'num.partitons'; did you mean 'num.partitions'?"),
        ("num.partitions=many", "Invalid value many for configuration num.partitions: Not a number of type INT"),
    ],
)
def test_a_wrong_override_is_told_and_nothing_is_left(tmp_path: Path, override: str, sentence: str) -> None:
    said = milena("up", "--dir", str(tmp_path), "--port", "0", "--brokers", "1", "--override", override, code=1)
    assert sentence in said and "Traceback" not in said
    assert not [entry for entry in json.loads((tmp_path / "nodes.json").read_text()) if entry["pid"]]


def test_detached_clusters_have_status_logs_and_an_end(tmp_path: Path) -> None:
    where = ("--dir", str(tmp_path))
    ready = milena("up", "--detach", "--brokers", "1", "--port", "0", *where)
    assert ready.startswith("ready bootstrap=127.0.0.1:")
    assert answers(ready.strip().removeprefix("ready bootstrap="))
    assert milena("status", *where).count(" up ") == 2
    assert "broker serves" in milena("logs", "broker-1", *where)
    milena("down", *where)
    assert milena("status", *where, code=1).count(" down ") == 2
    assert "nothing runs" in milena("down", *where)


def test_down_stops_a_cluster_in_the_foreground(milena_start: StartCluster) -> None:
    cluster = milena_start()
    pids = [node.pid for node in cluster.nodes.values()]
    milena("down", "--dir", cluster.directory)
    assert not any(pid and runs(pid) for pid in pids)


def test_the_same_directory_remembers_its_options(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path, brokers=2, overrides={"num.partitions": "7"}):
        pass
    ready = milena("up", "--detach", "--dir", str(tmp_path))
    assert ready.count("127.0.0.1") == 2
    milena("down", "--dir", str(tmp_path))
    assert "num.partitions=7" in (tmp_path / "broker-2" / "server.properties").read_text()


def test_kafka_variables_of_the_shell_do_not_reach_the_nodes(
    milena_start: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITONS", "3")
    milena_start()


def test_a_directory_with_spaces_and_umlauts(milena_start: StartCluster, tmp_path: Path) -> None:
    cluster = milena_start(directory=tmp_path / "a b" / "ö")
    assert cluster.nodes[1].log_dirs == (str(tmp_path / "a b" / "ö" / "broker-1" / "data"),)
    assert Path(cluster.nodes[1].log_dirs[0], "meta.properties").exists()


def test_metrics_and_health_of_a_node(milena_start: StartCluster) -> None:
    cluster = milena_start(overrides={"broker.session.timeout.ms": "1000"})
    cluster.kill(1)
    port = free("127.0.0.1", 1)[0]
    properties = Path(cluster.directory, "broker-1", "server.properties")
    node = subprocess.Popen(
        [*MILENA, "node", str(properties), "--control", str(port)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert node.stdout is not None
        assert node.stdout.readline().startswith("ready node=1 PLAINTEXT://127.0.0.1:")
        assert get(port, "/health").startswith("HTTP/1.1 200") and '"ready": true' in get(port, "/health")
        assert "kafka_server_" in get(port, "/metrics")
        assert get(port, "/nothing").startswith("HTTP/1.1 404")
    finally:
        node.terminate()
        node.communicate(timeout=30)


def get(port: int, page: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"GET {page} HTTP/1.0\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def test_a_cluster_that_does_not_start_says_why(milena_start: StartCluster) -> None:
    with pytest.raises(UserError, match=r"(?s)milena up: .*milena: --topic bad name: topic bad name: The topic name"):
        milena_start(topics=["bad name:1:1"])


def test_three_brokers_are_ready_soon(milena_start: StartCluster) -> None:
    """The goal is one second on an idle machine of two cores; CI machines get three."""
    begin = time.perf_counter()
    milena_start(brokers=3)
    assert time.perf_counter() - begin < 3 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
