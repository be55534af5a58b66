"""The console of the compose file with its fault buttons: `docker compose --env-file docker/console.env up`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.containers.engine import ROOT, Project, docker, needs
from tests.wire.http_client import HttpClient
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
IMAGE = os.environ.get("MILENA_CONSOLE_IMAGE", "milena-kafka-console")
FILES = "/tmp/milena-data"
NODES = ("broker-1", "broker-2", "broker-3", "controller-1000")


@pytest.fixture(scope="module")
def cluster(project: Callable[..., Project]) -> Iterator[Project]:
    needs(IMAGE)
    variables = {"MILENA_CONSOLE_IMAGE": IMAGE}
    with project("console", settings=ROOT / "docker" / "console.env", variables=variables).running() as running:
        running.container("console").wait_logged("HTTP API at")
        yield running


@pytest.fixture
def http(cluster: Project, tmp_path: Path) -> HttpClient:
    """A program on this machine, with the token of the container."""
    token = cluster.container("console").run("cat", f"{FILES}/http-token")
    (tmp_path / "http-token").write_text(token)
    (tmp_path / "http-address").write_text(f"http://127.0.0.1:{cluster.variables['HTTP_PORT']}")
    return HttpClient(tmp_path)


def faults_of(http: HttpClient) -> dict[str, Any]:
    return {name: node["faults"] for name, node in http.ok("/api/state")["nodes"].items()}


def test_a_fault_of_each_node_is_set_and_ended(http: HttpClient) -> None:
    wait_until(lambda: sorted(http.ok("/api/state")["nodes"]) == [*NODES], "not all nodes are listed")
    for name in NODES:
        http.ok(f"/api/nodes/{name}/jump_clock", "POST", {"ms": 1000})
    assert faults_of(http) == {name: [{"command": "jump_clock", "ms": 1000}] for name in NODES}
    for name in NODES:
        http.ok(f"/api/nodes/{name}/jump_clock", "POST", {"ms": 0})
    assert faults_of(http) == {name: [] for name in NODES}


def test_a_rule_holds_requests_of_a_broker_until_it_is_released(http: HttpClient) -> None:
    rule = {"node": "controller-1000", "action": "hold", "api": "BROKER_HEARTBEAT", "peer": 2}
    number = http.ok("/api/rules", "POST", rule)["ok"]["rule"]
    path = f"/api/rules/controller-1000/{number}"
    assert http.ok(f"{path}/wait?hits=1&seconds=60")["held"]
    assert http.ok(path, "DELETE")["ok"]["released"] >= 1
    assert http.ok("/api/rules") == {}


def test_a_killed_node_is_down_until_its_container_runs_again(cluster: Project, http: HttpClient) -> None:
    def states() -> str:
        return str(http.ok("/api/state")["nodes"]["broker-3"]["state"])

    killed = cluster.container("broker-3")
    docker("kill", killed.id)
    wait_until(lambda: states() == "down", "broker-3 is not shown as down")
    docker("start", killed.id)
    wait_until(lambda: states() == "up", "broker-3 is not shown as up")
    refused = http.call("/api/nodes/broker-3/kill", "POST")
    assert (refused.status, "use the container engine instead" in refused.json["error"]) == (409, True)
