"""`milena http --bootstrap-server`: the state of a cluster that only Kafka's protocol reaches."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milena.console.state_types import State
from milena.testing.local_cluster import LocalCluster
from tests.wire.hanging import UNVERIFIED, make_transactions
from tests.wire.http_client import HttpClient, until_ready


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(
        tmp_path_factory.mktemp("any"), brokers=2, topics=["orders:2:2"], overrides=UNVERIFIED
    ) as running:
        yield running


@pytest.fixture(scope="module")
def http(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpClient]:
    folder = tmp_path_factory.mktemp("server") / "files"
    options = ["-b", cluster.bootstrap, "--dir", str(folder), "--port", "0", "--console"]
    command = [sys.executable, "-P", "-m", "milena", "http", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        until_ready(server)
        yield HttpClient(folder)
        server.terminate()
        assert server.wait(20) == 0
    assert not (folder / "http-address").exists()


def test_the_state_says_what_is_missing(http: HttpClient, cluster: LocalCluster) -> None:
    state = http.ok("/api/state")
    State.model_validate_json(json.dumps(state), strict=True)
    assert state["cluster"]["limits"].startswith("Only Kafka's protocol is available")
    assert {name: node["address"] for name, node in state["nodes"].items()} == {
        f"broker-{node.id}": node.listeners["PLAINTEXT"] for node in cluster.brokers
    }
    for leader, epoch, _, replicas, isr, *_ in state["topics"]["orders"]["partitions"]:
        assert (leader in replicas, epoch, sorted(isr)) == (True, 0, [1, 2])


def test_replicas_have_sizes_and_the_leaders_offsets(http: HttpClient) -> None:
    http.ok("/api/topics/orders/records", "POST", {"value": "x", "partition": 0})
    partition = http.ok("/api/state")["topics"]["orders"]["partitions"][0]
    leader, follower = partition[8][str(partition[0])], partition[8][str(3 - partition[0])]
    assert (leader[0], leader[1], leader[3]) == ("L", 0, 1)
    assert (follower[0], follower[5]) == ("F", 1)
    assert leader[7] == follower[7] > 0


def test_open_transactions_are_in_the_state(http: HttpClient, cluster: LocalCluster) -> None:
    make_transactions(cluster.bootstrap, "pay")
    state = http.ok("/api/state")
    State.model_validate_json(json.dumps(state), strict=True)
    assert [(name, row["state"]) for block in state["transactions"].values() for name, row in block["ids"].items()] == [
        ("pay-ongoing", "Ongoing")
    ]
    partition = state["topics"]["pay"]["partitions"][1]
    leader = partition[8][str(partition[0])]
    assert leader[3] > leader[4] == leader[13][1] > 0


def test_nodes_and_processes_cannot_be_controlled(http: HttpClient) -> None:
    assert http.ok("/api/commands") == {}
    missing = http.call("/api/nodes/broker-1/kill", "POST")
    assert (missing.status, "none that can be controlled" in missing.json["error"]) == (404, True)
    assert http.call("/api/reset", "POST").status == 409
    assert http.call("/api/topics/orders/segments").status == 409


def test_a_link_of_the_folder_signs_in(http: HttpClient) -> None:
    command = [sys.executable, "-m", "milena", "console", "--dir", http.folder]
    link = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert http.call(link.removeprefix(http.address), headers={"authorization": ""}).status == 303


def test_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "http-token").write_text("secret\n")
    (tmp_path / "http-token").chmod(0o644)
    command = [sys.executable, "-m", "milena", "http", "-b", "127.0.0.1:1", "--dir", str(tmp_path), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "is readable by other users: chmod 600" in done.stderr
    assert "secret\n" not in done.stderr
