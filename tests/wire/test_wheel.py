"""The wheel in an empty environment, beside a project that has packages called storage, broker and node of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = {
    "storage/__init__.py": "VALUE = 'of the project'\n",
    "broker/__init__.py": "VALUE = 'of the project'\n",
    "node/__init__.py": "VALUE = 'of the project'\n",
    "node/server.py": "VALUE = 'of the project'\n",
    "runtime.py": "VALUE = 'of the project'\n",
    "pytest.ini": "[pytest]\nmilena_brokers = 2\n",
    "test_project.py": """
import socket
import subprocess
import sys

import broker
import node.server
import runtime
import storage


def test_a_cluster_beside_the_project(milena_cluster):
    assert all(one.VALUE == "of the project" for one in (broker, node, node.server, runtime, storage))
    assert len(milena_cluster.bootstrap.split(",")) == 2
    for address in milena_cluster.bootstrap.split(","):
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port))).close()


def test_a_cluster_of_its_own(milena_start):
    cluster = milena_start(topics=["orders:2:1"])
    topics = [sys.executable.replace("python", "milena"), "topic", "list", "-b", cluster.bootstrap]
    assert b"orders" in subprocess.run(topics, capture_output=True, check=True).stdout
""",
}

pytestmark = pytest.mark.timeout(600)


def run(*command: str, cwd: Path, stdin: str = "", variables: Mapping[str, str] | None = None) -> str:
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def write_project(folder: Path) -> None:
    for name, content in PROJECT.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment that has the wheel, what it depends on, and pytest."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT), cwd=folder)
    (wheel,) = folder.glob("milena_kafka-*.whl")  # made from the sdist, so nothing stale of a build folder is in it
    run(sys.executable, str(ROOT / ".ci" / "make_venv.py"), "venv", cwd=folder)
    binaries = folder / "venv" / "bin"
    run(str(binaries / "python"), "-m", "pip", "install", "--quiet", str(wheel), "pytest", cwd=folder)
    return binaries


def test_the_wheel_serves_a_foreign_project(environment: Path, tmp_path: Path) -> None:
    write_project(tmp_path)
    assert "2 passed" in run(str(environment / "python"), "-m", "pytest", "-q", "-W", "error", cwd=tmp_path)


def test_the_wheels_command_runs_where_the_names_of_its_rooms_are_taken(environment: Path, tmp_path: Path) -> None:
    write_project(tmp_path)

    def milena(*words: str, stdin: str = "") -> str:
        """The project is on the path, as with PYTHONPATH=. and as in its own test runs."""
        return run(
            str(environment / "milena"), *words, cwd=tmp_path, stdin=stdin, variables={"PYTHONPATH": str(tmp_path)}
        )

    where = ("--dir", str(tmp_path / "data"))
    ready = milena("up", "--detach", "--brokers", "1", "--port", "0", "--topic", "orders:2:1", *where)
    to = ("-b", ready.strip().removeprefix("ready bootstrap="))
    try:
        assert milena("status", *where).count(" up ") == 2
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            milena("produce", "orders", "--compression", codec, *to, stdin=f"by {codec}\n")
        read = milena("consume", "orders", "--group", "readers", "--from-beginning", "--max", "5", *to)
        assert sorted(read.splitlines()) == ["by gzip", "by lz4", "by none", "by snappy", "by zstd"]
        assert milena("group", "list", *to).startswith("readers ")
        segments = (tmp_path / "data" / "broker-1" / "data").glob("orders-*/00000000000000000000.log")
        assert "by lz4" in milena("log", "dump", *map(str, segments))
    finally:
        milena("down", *where)
    module = run(str(environment / "python"), "-m", "milena", "--version", cwd=tmp_path)
    assert module == run(str(environment / "milena"), "--version", cwd=tmp_path)


def test_the_wheels_only_top_level_name_is_milena(environment: Path) -> None:
    installed = run(
        str(environment / "python"), "-c",
        "import importlib.metadata as m; print(*sorted({str(f).split('/')[0] for f in m.files('milena-kafka')}))",
        cwd=environment,
    )  # fmt: skip
    tops = {name for name in installed.split() if not name.startswith(("milena_kafka-", ".."))}
    assert tops == {"milena"}
    assert os.path.exists(environment / "milena")


def test_the_wheel_has_the_scenarios(environment: Path) -> None:
    """Data beside the code: the files must be named to get there."""
    read = "import milena.lab.scenarios.script as s; print(*(one for one in s.all_scenarios() if s.source(one)))"
    installed = run(str(environment / "python"), "-P", "-c", read, cwd=environment)
    assert installed.split() == sorted(path.stem for path in (ROOT / "milena" / "lab" / "scenarios").glob("*.yaml"))
