"""`milena node --control PORT`: metrics for Prometheus under Kafka's names, and the node's health."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from milena.testing.local_cluster import LIMIT, MILENA, LocalCluster
from milena.up import nodes_file
from milena.up.layout import ClusterDir
from milena.up.ports import free
from tests.wire.command import Node, milena, node, refused
from tests.wire.properties import combined, write
from tests.wire.raw import connected, is_closed
from tests.wire.waiting import wait_until

SAMPLE = re.compile(r'([a-z_]+)(\{[a-z_]+="[^"]*"(?:,[a-z_]+="[^"]*")*\})? (-?\d+(?:\.\d+)?(?:e-?\d+)?|[+-]Inf|NaN)')
OWN = (
    "milena_remote_uncompacted_replicas",
    "milena_follower_partitions",
    "milena_build_info",
    "milena_contained_errors",
    "milena_open_transactions",
    "milena_transactional_ids",
)
"""Metrics that Kafka does not have."""
KAFKA = (
    "kafka_cluster_",
    "kafka_controller_",
    "kafka_coordinator_",
    "kafka_log_",
    "kafka_network_",
    "kafka_server_",
    "process_",
)


@pytest.fixture(scope="module")
def control() -> int:
    return free("127.0.0.1", 1)[0]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, control: int) -> Iterator[Node]:
    """A combined node with an open control port, after ten records were written and read."""
    folder = tmp_path_factory.mktemp("watched")
    with node(folder, write(folder, combined(folder)), "--control", str(control)) as running:
        milena("topic", "create", "ten", "--partitions", "2", "-b", running.address)
        milena("produce", "ten", "-b", running.address, stdin="record\n" * 10)
        milena("consume", "ten", "--from-beginning", "--exit", "-b", running.address)
        yield running


def get(port: int, page: str, method: str = "GET") -> tuple[int, str, str]:
    """Return status, content type and body of a page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    try:
        connection.request(method, page)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def samples(port: int) -> dict[str, float]:
    """Return every sample of /metrics: value by name with labels."""
    found = {}
    for line in get(port, "/metrics")[2].splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match, line
            found[match[1] + (match[2] or "")] = float(match[3])
    return found


@pytest.mark.parametrize("page", ["/health", "/ready"])
def test_the_pages_of_a_node_that_serves_return_200(watched: Node, control: int, page: str) -> None:
    status, kind, body = get(control, page)
    assert (status, kind) == (200, "application/json")
    assert json.loads(body) == {
        "healthy": True,
        "ready": True,
        "node": 1,
        "roles": ["broker", "controller"],
        "offline_log_dirs": [],
    }


def test_a_broker_whose_controller_is_away_is_healthy_but_not_ready(tmp_path: Path) -> None:
    timeouts = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
    with LocalCluster.start(tmp_path, overrides=timeouts, options=["--metrics", "0"]) as cluster:
        (control,) = (
            int(entry["metrics"].rpartition(":")[2])
            for entry in nodes_file.read(ClusterDir(cluster.directory).nodes)
            if entry["id"] == cluster.brokers[0].id
        )
        wait_until(lambda: statuses(control) == (200, 200), "the broker to be ready")
        cluster.pause(cluster.controller.id)
        wait_until(lambda: statuses(control) == (200, 503), "the broker to be healthy and not ready")
        cluster.resume(cluster.controller.id)
        wait_until(lambda: statuses(control) == (200, 200), "the broker to be ready again")


def test_a_node_with_an_offline_log_directory_is_ready_but_not_healthy(tmp_path: Path) -> None:
    port = free("127.0.0.1", 1)[0]
    (tmp_path / "broken").write_text("not a directory")
    file = write(tmp_path, combined(tmp_path, log_dirs=f"{tmp_path}/data,{tmp_path}/broken"))
    with node(tmp_path, file, "--control", str(port)):
        assert statuses(port) == (503, 200)
        assert json.loads(get(port, "/health")[2])["offline_log_dirs"] == [f"{tmp_path}/broken"]


def statuses(port: int) -> tuple[int, int]:
    """Return the status of /health and that of /ready."""
    return get(port, "/health")[0], get(port, "/ready")[0]


def test_metrics_are_prometheus_text_under_kafkas_names(watched: Node, control: int) -> None:
    status, kind, body = get(control, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    types = {line.split()[2]: line.split()[3] for line in body.splitlines() if line.startswith("# TYPE ")}
    assert set(types.values()) <= {"counter", "gauge", "summary"}
    for sample in samples(control):
        assert sample.startswith((*KAFKA, *OWN))
        name = sample.partition("{")[0]
        assert name in types or re.sub("_(sum|count)$", "", name) in types


def test_metrics_count_requests_and_records(watched: Node, control: int) -> None:
    found = samples(control)
    assert found['kafka_server_brokertopicmetrics_messagesinpersec_total{topic="ten"}'] == 10
    assert found['kafka_server_brokertopicmetrics_bytesoutpersec_total{topic="ten"}'] > 60
    assert found["kafka_server_replicamanager_partitioncount"] == 2
    assert found["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert found["kafka_controller_kafkacontroller_activebrokercount"] == 1
    produced = [value for name, value in found.items() if "requestspersec" in name and 'request="Produce"' in name]
    assert sum(produced) > 0
    milena("produce", "ten", "-b", watched.address, stdin="one more\n")
    assert samples(control)['kafka_server_brokertopicmetrics_messagesinpersec_total{topic="ten"}'] == 11


def test_metrics_and_the_log_name_version_and_form(watched: Node, control: int) -> None:
    _, version, form = milena("--version").out.split()
    (info,) = [name for name in samples(control) if name.startswith("milena_build_info")]
    assert f'version="{version}"' in info
    assert f'form="{form.strip("()")}"' in info
    assert samples(control)[info] == 1
    events = [json.loads(line) for line in watched.log.read_text().splitlines()]
    (start,) = [event for event in events if event["event"] == "node starts"]
    assert (start["version"], f"({start['form']})") == (version, form)


def test_other_pages_and_methods_are_refused(watched: Node, control: int) -> None:
    assert get(control, "/nothing")[0] == 404
    assert "/health, /metrics, /ready" in get(control, "/nothing")[2]
    assert get(control, "/metrics", "POST")[0] == 405


def test_a_connection_serves_several_requests(watched: Node, control: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", control, timeout=LIMIT)
    connection.connect()
    first = connection.sock
    for page in ("/health", "/metrics", "/health"):
        connection.request("GET", page)
        assert connection.getresponse().read()
        assert connection.sock is first
    connection.close()


@pytest.mark.parametrize("data", [b"\x00\x01\x02" * 20 + b"\r\n\r\n", b"G" * 9000], ids=["no HTTP", "too long"])
def test_a_connection_with_bytes_that_are_no_http_request_is_closed(watched: Node, control: int, data: bytes) -> None:
    with connected(f"127.0.0.1:{control}") as plain:
        plain.sendall(data)
        assert is_closed(plain)
    assert get(control, "/health")[0] == 200


def test_a_control_port_in_use_is_a_one_line_error(watched: Node, control: int, tmp_path: Path) -> None:
    said = refused("node", write(tmp_path, combined(tmp_path)), "--control", str(control))
    assert said == f"the control port: cannot listen on 127.0.0.1:{control}: address already in use"
    wrong = refused("node", write(tmp_path, combined(tmp_path)), "--control", "70000", code=2)
    assert wrong == "--control 70000: not a port number between 0 and 65535"


def test_a_broker_without_a_controller_is_not_ready_and_says_why(tmp_path: Path) -> None:
    broker, absent, control = free("127.0.0.1", 3)
    file = write(
        tmp_path,
        {
            "node.id": 2,
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker}",
            "controller.quorum.voters": f"1@127.0.0.1:{absent}",
            "log.dirs": tmp_path / "data",
        },
    )
    waiting = subprocess.Popen(
        [*MILENA, "node", file, "--control", str(control)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert waiting.stderr is not None
    try:
        assert json.loads(waiting.stderr.readline())["event"] == "node starts"
        opened = json.loads(waiting.stderr.readline())
        assert (opened["event"], opened["address"]) == ("control page served", f"http://127.0.0.1:{control}")
        assert statuses(control) == (503, 503)
        found = json.loads(get(control, "/health")[2])
        assert (found["healthy"], found["ready"]) == (False, False)
        warning_event = json.loads(waiting.stderr.readline())
        assert (warning_event["level"], warning_event["event"]) == ("warning", "controller not reached")
        assert warning_event["controller"] == f"127.0.0.1:{absent}"
    finally:
        waiting.terminate()
        waiting.communicate(timeout=LIMIT)
    assert waiting.returncode == 0
