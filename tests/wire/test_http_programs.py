"""Programs in other languages, and curl, use the HTTP API."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milena.testing.local_cluster import LocalCluster
from milena.up.layout import ClusterDir
from tests.wire.command import program, without_kafka

PROGRAMS = Path(__file__).parent / "http_programs"
DOCUMENT = Path(__file__).parents[2] / "docs" / "http.md"
BLOCK = re.compile(r"(?:^    .*\n)+", re.MULTILINE)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("http"), brokers=3, options=["--http=0"]) as running:
        yield running


def check(output: str) -> None:
    said = json.loads(output)
    assert said["before"] == said["after"] == [1, 2, 3]
    assert said["during"] == [node for node in (1, 2, 3) if node != said["killed"]]


def test_a_node_program_holds_kills_releases_and_reads_the_isr(lab: LocalCluster) -> None:
    check(subprocess.check_output([program("node"), PROGRAMS / "hold.mjs", lab.directory], text=True))


def test_a_go_program_holds_kills_releases_and_reads_the_isr(lab: LocalCluster, tmp_path: Path) -> None:
    built = tmp_path / "hold"
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    subprocess.run([program("go"), "build", "-o", built, "."], cwd=PROGRAMS / "go", env=environment, check=True)
    check(subprocess.check_output([built, lab.directory], text=True))


def test_the_documented_commands_work(tmp_path: Path) -> None:
    """All commands of docs/http.md in their order, on free ports."""
    program("curl")
    script = "".join(line[4:] + "\n" for block in BLOCK.findall(DOCUMENT.read_text()) for line in block.splitlines())
    assert script.count("curl ") > 5
    started = "milena up --detach --console"
    assert script.count("milena up") == 1
    script = script.replace(started, f"{started} --http=0 --port 0").replace("curl ", "curl -sS --fail-with-body ")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    try:
        done = subprocess.run(
            ["sh", "-e", "-c", script],
            cwd=tmp_path,
            env={**without_kafka(), "PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    finally:
        if ClusterDir(str(tmp_path / "milena-data")).exists():
            subprocess.run([sys.executable, "-m", "milena", "down"], cwd=tmp_path, check=True)
