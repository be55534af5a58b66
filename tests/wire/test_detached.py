"""`milena up --detach`, and `milena down`, `status` and `logs` of a cluster in the background."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from milena.testing.local_cluster import LIMIT, MILENA
from milena.up.ports import free
from milena.up.processes import runs
from tests.wire.command import milena, refused
from tests.wire.raw import answers
from tests.wire.waiting import wait_gone


class Detached(NamedTuple):
    where: tuple[str, str]
    directory: Path
    bootstrap: str


@pytest.fixture(scope="module")
def detached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detached]:
    """A detached cluster of two brokers, which no test stops."""
    directory = tmp_path_factory.mktemp("detached")
    where = ("--dir", str(directory))
    said = milena("up", "--detach", "--brokers", "2", "--port", "0", *where)
    assert said.err == ""
    yield Detached(where, directory, said.out.strip().removeprefix("ready bootstrap="))
    milena("down", *where)


def test_up_detach_returns_when_the_cluster_is_ready(detached: Detached) -> None:
    assert all(map(answers, detached.bootstrap.split(",")))


def test_the_supervisor_is_a_daemon_without_a_terminal(detached: Detached) -> None:
    (entry, *_) = json.loads((detached.directory / "nodes.json").read_text())
    supervisor = parent_of(entry["pid"])
    assert os.getsid(supervisor) == supervisor != os.getsid(0)
    assert "ready at" in (detached.directory / "logs" / "up.log").read_text()


def parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        pytest.skip("needs Linux's /proc")
    return int(stat.read_text().rpartition(")")[2].split()[1])


def test_status_shows_each_node(detached: Detached) -> None:
    head, *rows = milena("status", *detached.where).out.splitlines()
    assert head.split() == ["node", "role", "state", "pid", "memory", "listeners"]
    entries = json.loads((detached.directory / "nodes.json").read_text())
    for row, entry in zip(rows, entries, strict=True):
        number, role, state, pid, memory, unit, listener = row.split()
        assert (number, role, state, pid) == (str(entry["id"]), entry["roles"][0], "up", str(entry["pid"]))
        assert (memory.isdecimal(), unit) == (True, "MiB")
        assert [listener] == [f"{name}://{address}" for name, address in entry["listeners"].items()]


@pytest.mark.parametrize("name", ["broker-1", "1"])
def test_logs_of_one_node(detached: Detached, name: str) -> None:
    assert milena("logs", name, *detached.where).out == (detached.directory / "logs" / "broker-1.log").read_text()


def test_logs_of_all_nodes(detached: Detached) -> None:
    text = milena("logs", "--lines", "1", *detached.where).out
    assert [name in text for name in ("broker-1.log", "broker-2.log", "controller-100.log", "up.log")] == [True] * 4
    assert milena("logs", "2", "--lines", "1", *detached.where).out.count("\n") == 1


def test_logs_are_followed(detached: Detached) -> None:
    command = [*MILENA, "logs", "broker-1", "--follow", "--lines", "1", *detached.where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as follower:
        assert follower.stdout is not None
        try:
            assert follower.stdout.readline().startswith(b"{")  # the last line at this time
            with (detached.directory / "logs" / "broker-1.log").open("a") as log:
                log.write('{"event": "written by the test"}\n')
            assert b"written by the test" in follower.stdout.readline()
        finally:
            os.killpg(follower.pid, signal.SIGTERM)


def test_a_log_that_does_not_exist_is_a_one_line_error(detached: Detached) -> None:
    said = refused("logs", "broker-7", *detached.where)
    assert said == f"{detached.directory}/logs has no log of a node broker-7"
    assert refused("logs", "--lines", "few", *detached.where, code=2) == "--lines few: not a whole number"


def test_logs_follow_ends_when_the_reader_closes_the_pipe(detached: Detached) -> None:
    command = [*MILENA, "logs", "broker-1", "-f", "--lines", "0", *detached.where]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        follower.stdout.close()
        assert follower.wait(LIMIT) == 0


@pytest.mark.parametrize("command", ["down", "status", "logs"])
def test_a_directory_without_a_cluster_is_a_one_line_error(tmp_path: Path, command: str) -> None:
    said = refused(command, "--dir", str(tmp_path))
    assert said == f"{tmp_path} holds no cluster (--dir names another directory)"


def test_up_detach_reports_at_once_why_the_cluster_cannot_start(tmp_path: Path) -> None:
    port = free("127.0.0.1", 1)[0]
    options = ("--dir", str(tmp_path), "--brokers", "1", "--port", str(port))
    with socket.create_server(("127.0.0.1", port)):
        assert refused("up", "--detach", *options).startswith(f"port {port} on 127.0.0.1 is in use: ")
    said = refused("up", "--detach", *options, "--override", "num.partitons=2")
    assert "unknown configuration key 'num.partitons'" in said


def test_each_node_has_metrics_and_their_ports_are_remembered(tmp_path: Path) -> None:
    where, up = ("--dir", str(tmp_path)), ("up", "--detach", "--dir", str(tmp_path))
    taken = free("127.0.0.1", 1)[0]
    with socket.create_server(("127.0.0.1", taken)):
        said = refused(*up, "--brokers", "1", "--port", "0", "--metrics", str(taken))
    assert said.startswith(f"port {taken} on 127.0.0.1 is in use: ") and said.endswith("with --metrics")
    milena(*up, "--brokers", "1", "--port", "0", "--metrics", "0", "--override", "num.partitions=3")
    try:
        pages = [row.split()[-1] for row in milena("status", *where).out.splitlines()[1:]]
        for page, metric in zip(pages, ("kafka_server_replicamanager", "kafka_controller_"), strict=True):
            assert page.startswith("http://127.0.0.1:") and page.endswith("/metrics")
            with urllib.request.urlopen(page, timeout=LIMIT) as answer:
                assert metric in answer.read().decode()
        milena("lab", "1", "kill", *where)
        milena("lab", "1", "start", *where)
        urllib.request.urlopen(pages[0], timeout=LIMIT).close()
        milena("down", *where)
        log = tmp_path / "logs" / "up.log"
        assert f"broker-1 has metrics at {pages[0]}" in log.read_text()
        assert "still holds" not in log.read_text()
        milena(*up, "--no-metrics")
        assert "--override num.partitions=3 still applies, from an earlier start" in log.read_text()
        assert "http" not in milena("status", *where).out
    finally:
        milena("down", *where)


def test_changing_the_cluster_of_another_user_is_a_one_line_error() -> None:
    """Another user can see the cluster's status, but can neither start nor stop it."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root and setpriv to be another user")
    other_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *MILENA]
    if subprocess.run([*other_user, "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("others may not read this checkout")
    with tempfile.TemporaryDirectory() as directory:  # other users cannot read pytest's directory
        os.chmod(directory, 0o755)
        where = ("--dir", directory)

        def said(*words: str) -> tuple[int, str, str]:
            done = subprocess.run([*other_user, *words, *where], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, done.stderr

        milena("up", "--detach", "--brokers", "1", "--port", "0", *where)
        try:
            assert said("status")[1].count(" up ") == 2
            assert said("up", "--detach") == (
                1, "", f"milena: cannot write {directory}/logs/up.log: Permission denied\n"
            )  # fmt: skip
            assert said("up") == (1, "", f"milena: cannot read {directory}/settings: Permission denied\n")
            assert said("down") == (1, "", f"milena: {directory}/.status: Permission denied\n")
            assert said("lab", "1", "kill") == (1, "", "milena: broker-1: Operation not permitted\n")
        finally:
            milena("down", *where)


def test_down_ends_every_process_and_status_shows_that(tmp_path: Path) -> None:
    where = ("--dir", str(tmp_path))
    milena("up", "--detach", "--brokers", "1", "--port", "0", *where)
    nodes = json.loads((tmp_path / "nodes.json").read_text())
    supervisor = parent_of(nodes[0]["pid"])
    assert milena("down", *where) == ("", "")
    assert not any(runs(node["pid"]) for node in nodes)
    wait_gone([supervisor], LIMIT)
    assert (tmp_path / "broker-1" / "data" / ".kafka_cleanshutdown").exists()
    assert milena("status", *where, code=1).out.count(" down ") == 2
    assert milena("down", *where).out == f"no cluster runs in {tmp_path}\n"
