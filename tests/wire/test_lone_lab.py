"""A lab node without `milena up`, as in a container: it is controlled through the folder in MILENA_LAB."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from milena.steering.lab import POWER_OFF_EXIT
from milena.testing.local_cluster import MILENA
from tests.wire.command import milena, node, refused, without_kafka
from tests.wire.http_client import HttpClient, until_ready
from tests.wire.properties import combined, variables, write
from tests.wire.waiting import wait_until


def test_a_single_node_is_controlled_by_name_or_id(tmp_path: Path) -> None:
    lab = str(tmp_path / "lab")
    env = without_kafka() | {"MILENA_LAB": lab}
    with node(tmp_path, write(tmp_path, combined(tmp_path)), "--lab", lab, code=POWER_OFF_EXIT) as running:
        for name in ("1", "broker-1"):
            assert json.loads(milena("lab", name, "ready", env=env).out) == {"ready": True}
        slow = milena("lab", "1", "slow_disk", f"path={tmp_path}/data", "ms=1", env=env)
        assert json.loads(slow.out) == {"slow": [f"{tmp_path}/data"], "ms": 1}
        assert refused("lab", "2", "ready", env=env).startswith(f"no node listens at {lab}/broker-2.sock")
        assert refused("lab", "1", "kill", env=env).startswith("kill: 1 has no `milena up`; use the container")
        assert refused("lab", "1", "hodl", env=env).startswith("no command 'hodl' (did you mean hold?); there are ")
        assert milena("lab", "1", "power_off", env=env).out == ""
        assert running.process.wait(20) == POWER_OFF_EXIT


@contextmanager
def served(*options: str) -> Iterator[None]:
    """A `milena http` with these options."""
    with subprocess.Popen([*MILENA, "http", *options], stderr=subprocess.PIPE, text=True) as server:
        try:
            until_ready(server)
            yield
        finally:
            server.terminate()
    assert server.returncode == 0


def test_lone_nodes_are_asked_and_controlled_over_http_through_their_sockets(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="needs the extra console")
    lab, files = str(tmp_path / "lab"), str(tmp_path / "files")
    asked = ["--lab", f"{tmp_path}/none,{lab}", "--dir", files, "--port", "0"]
    with (
        node(tmp_path, write(tmp_path, combined(tmp_path)), "--lab", lab) as running,
        served("-b", running.address, *asked),
    ):
        http = HttpClient(files)
        http.ok("/api/nodes/broker-1/slow_disk", "POST", {"ms": 2})
        state = http.ok("/api/state")
        found = state["nodes"]["broker-1"]
        assert (found["state"], found["pid"], found["log_dirs"]) == ("up", None, [f"{tmp_path}/data"])
        assert found["faults"] == [{"command": "slow_disk", "path": f"{tmp_path}/data", "ms": 2}]
        assert (state["cluster"]["lab"], state["cluster"]["dir"]) == (True, None)
        assert "kill" not in http.ok("/api/commands")["broker-1"]["commands"]
        running.process.terminate()
        wait_until(lambda: http.ok("/api/nodes")["broker-1"]["state"] == "down", "the node is not shown as down")
    assert refused("http", "--lab", lab).startswith("--lab needs --bootstrap-server")


def test_the_folder_of_a_lab_is_absolute_and_beside_the_log_directories(tmp_path: Path) -> None:
    file = write(tmp_path, combined(tmp_path))
    assert refused("node", file, "--lab", "lab") == "--lab lab: not an absolute path of a folder"
    assert refused("node", file, "--lab", f"{tmp_path}/data/lab") == (
        f"--lab {tmp_path}/data/lab is in the log directory {tmp_path}/data: it must be outside of it"
    )
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        said = refused("node", file, "--lab", elsewhere)
    assert said.endswith(f"is on another file system than the log directory {tmp_path}/data")


def test_a_container_reads_the_lab_folder_from_a_variable(tmp_path: Path) -> None:
    env = without_kafka() | variables(combined(tmp_path)) | {"MILENA_LAB": "true", "MILENA_METRICS_PORT": "0"}
    said = milena("container", code=1, env=env)
    assert said.err.splitlines()[-1] == "milena: --lab true: not an absolute path of a folder"
