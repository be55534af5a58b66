"""The unchanged examples of docs/testing.md: pytest, unittest, the lab, and the shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milena.testing.local_cluster import LIMIT, LocalCluster
from tests.wire.command import program, without_kafka

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"^```(?:python|sh|go|java)\n(?:#|//) (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A code block whose first line names its file."""

pytestmark = pytest.mark.timeout(240)


def examples() -> dict[str, str]:
    return dict(EXAMPLE.findall((ROOT / "docs" / "testing.md").read_text()))


def run(folder: Path, *command: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**without_kafka(), "PATH": path},
        capture_output=True,
        text=True,
        timeout=3 * LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_examples_in_python_pass(tmp_path: Path) -> None:
    tests = {name: body for name, body in examples().items() if name.endswith(".py")}
    for name, body in {**tests, "pytest.ini": "[pytest]\n"}.items():
        (tmp_path / name).write_text(body)
    output = run(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")
    assert len(tests) == 5
    assert "9 passed" in output


def test_the_example_in_shell_runs_a_command_beside_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "run_tests.sh").write_text(examples()["run_tests.sh"])
    output = run(tmp_path, "sh", "run_tests.sh", "sh", "-c", 'milena topic list -b "$KAFKA_BOOTSTRAP"')
    assert output.split()[0] == "orders"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with an HTTP server."""
    with LocalCluster.start(tmp_path_factory.mktemp("served"), options=["--http=0"]) as cluster:
        yield cluster


def test_the_example_in_go_resets_the_cluster_for_each_test(served: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "reset_test.go").write_text(examples()["reset_test.go"])
    (tmp_path / "go.mod").write_text("module orders\n\ngo 1.21\n")
    environment = {**os.environ, "MILENA_DIR": served.directory, "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        [program("go"), "test", "-v", "./..."], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("--- PASS") == 3


@pytest.mark.slow
def test_the_example_for_junit_restores_the_cluster_for_each_test(served: LocalCluster, tmp_path: Path) -> None:
    program("java")
    (tmp_path / "OrdersTest.java").write_text(examples()["OrdersTest.java"])
    shutil.copy(Path(__file__).parent / "http_programs" / "java" / "pom.xml", tmp_path)
    environment = {**os.environ, "MILENA_DIR": served.directory}
    maven = [program("mvn"), "-B", "test"]
    done = subprocess.run(maven, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "Tests run: 2, Failures: 0, Errors: 0, Skipped: 0" in done.stdout
