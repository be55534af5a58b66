"""`milena up --http` and `--console` as processes: the state, signing in, what is in the logs, and the server's end."""

from __future__ import annotations

import http.client as http_client
import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milena.command_line.errors import UserError
from milena.testing.local_cluster import LocalCluster
from milena.up import http_server
from tests.wire.http_client import HttpClient
from tests.wire.waiting import Deadline


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(
        tmp_path_factory.mktemp("http"), brokers=2, topics=["orders:2:2"], options=["--console", "--http=0"]
    ) as running:
        yield running


@pytest.fixture
def http(lab: LocalCluster) -> HttpClient:
    return HttpClient(lab.directory)


def test_the_state_has_nodes_partitions_and_replicas(http: HttpClient, lab: LocalCluster) -> None:
    state = http.ok("/api/state")
    assert {name: node["pid"] for name, node in state["nodes"].items()} == {
        f"{node.roles[0]}-{node.id}": node.pid for node in lab.nodes.values()
    }
    assert state["cluster"]["bootstrap"] == lab.bootstrap
    for leader, epoch, _, replicas, isr, _, _, _, rows, _ in state["topics"]["orders"]["partitions"]:
        assert (epoch, sorted(replicas), sorted(isr)) == (0, [1, 2], [1, 2])
        assert {broker: row[0] for broker, row in rows.items()} == {str(leader): "L", str(3 - leader): "F"}


def test_an_event_stream_has_what_changes(http: HttpClient, lab: LocalCluster) -> None:
    state = http.ok("/api/state")
    connection = http_client.HTTPConnection(http.host, timeout=60)
    path = f"/api/events?stream={state['stream']}&seq={state['seq']}"
    connection.request("GET", path, headers={"authorization": f"Bearer {http.token}"})
    response = connection.getresponse()
    lab.lab_commands(1).call("hold", api="FETCH", peer="no-such-client")
    lines = iter(response.readline, b"")
    seen = next(line for line in lines if b"hold api=FETCH" in line)
    assert seen.startswith(b"data: {")
    response.close()
    connection.close()
    lab.lab_commands(1).call("clear")


def test_a_link_signs_a_browser_in_once(http: HttpClient, lab: LocalCluster) -> None:
    command = [sys.executable, "-m", "milena", "console", "--dir", lab.directory]
    link = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    path = link.removeprefix(http.address)
    anonymous = {"authorization": ""}
    first = http.call(path, headers=anonymous)
    assert first.status == 303
    assert "HttpOnly" in first.headers["set-cookie"]
    assert "samesite=strict" in first.headers["set-cookie"].lower()
    cookie = first.headers["set-cookie"].partition(";")[0]
    assert http.call("/api/state", headers={**anonymous, "cookie": cookie}).status == 200
    second = http.call(path, headers=anonymous)
    assert second.status == 403
    assert "milena console" in second.body.decode()
    logs = "".join(path.read_text() for path in Path(lab.directory, "logs").iterdir())
    logs += Path(lab.directory, "up.stderr").read_text()
    assert "HTTP API at" in logs
    for secret in (link.partition("code=")[2], http.token, cookie.partition("=")[2]):
        assert secret not in logs


def test_requests_of_other_pages_and_without_token_are_refused(http: HttpClient) -> None:
    assert http.call("/api/state", headers={"authorization": ""}).status == 401
    assert http.call("/api/state", headers={"host": "evil.example"}).status == 421
    assert http.call("/api/rules", "POST", {}, {"origin": "http://evil.example"}).status == 403
    assert http.call("/health", headers={"authorization": ""}).json == {"status": "ok"}


def test_the_server_ends_with_its_cluster(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path, options=["--http=0"]) as running:
        client = HttpClient(running.directory)
        assert client.call("/").json["error"].endswith("`milena up --console` adds it")
        host, _, port = client.host.rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            running.kill_supervisor()
            Deadline(20).readable(connection.fileno(), lambda: "the server still runs")
            assert connection.recv(1) == b""


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"--http needs the extra console: pip install 'milena-kafka\[console\]'"):
        http_server.check_extra("--http")
