"""Testcontainers' classes for Kafka, of Java, Go, Node.js and Python, with Milena's image: a client of that language
creates a topic, writes records and reads them in a group.

Most of the classes are made for Confluent's image. Some compare the image's tag with versions of that image, so the
image gets a tag that is such a version.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from testcontainers.community.kafka import KafkaContainer

from tests.containers.engine import IMAGE, docker
from tests.containers.work import written_and_read

HERE: Final = Path(__file__).parent
CONFLUENTS_TAG: Final = "8.4.0"
"""The number of Confluent's image with Kafka 4.4."""
NODE_MODULES: Final = {(20,): "11.14.0", (22, 22): "12.2.0"}
"""Versions of Testcontainers, by the lowest version of Node.js that they run on."""
KAFKAJS: Final = "kafkajs@2.2.4"
LIMIT: Final = 500
pytestmark = [pytest.mark.costly, pytest.mark.timeout(600), pytest.mark.usefixtures("without_reaper")]


@pytest.fixture(scope="module")
def image() -> str:
    """The image, with a tag that the classes accept."""
    name = f"{IMAGE.partition(':')[0]}:{CONFLUENTS_TAG}"
    docker("tag", IMAGE, name)
    return name


def run(*command: str, variables: Mapping[str, str], folder: Path = HERE) -> str:
    """Run a program of another language with Testcontainers' variables; return its output."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    # In a container, Testcontainers would otherwise start an image that cannot be pulled.
    own = {"TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1", "DOCKER_HOST": host}
    environment = {**os.environ, **own, **variables}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=LIMIT, cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs_programs(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")


def version_of(command: Sequence[str]) -> tuple[int, ...]:
    """Return the first version number that a program prints."""
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.search(r"\d+(\.\d+)+", printed)
    assert found is not None, printed
    return tuple(map(int, found[0].split(".")))


def test_java(image: str, tmp_path: Path) -> None:
    needs_programs("java", "mvn")
    pom = str(HERE / "java/pom.xml")
    maven = ("mvn", "-q", "-B", "-f", pom, f"-Dtarget={tmp_path}", f"-Dimage={image}", "test")
    run(*maven, variables={"TESTCONTAINERS_CHECKS_DISABLE": "true"})
    (report,) = tmp_path.glob("surefire-reports/*.xml")
    assert 'tests="3"' in report.read_text() and 'skipped="0"' in report.read_text()


def test_go(image: str) -> None:
    needs_programs("go")
    needed = re.search(r"^go (\d+)\.(\d+)", (HERE / "go/go.mod").read_text(), re.MULTILINE)
    assert needed is not None
    if version_of(["go", "version"]) < tuple(map(int, needed.groups())):
        pytest.skip(f"needs Go {'.'.join(needed.groups())}")
    settings = {"MILENA_IMAGE": image, "CGO_ENABLED": "0"}
    printed = run("go", "test", "-count=1", "-v", "./...", variables=settings, folder=HERE / "go")
    assert "--- PASS: TestRecordsAreWrittenAndReadInAGroup" in printed


def test_node(image: str, tmp_path: Path) -> None:
    needs_programs("node", "npm")
    version = version_of(["node", "--version"])
    usable = [lowest for lowest in NODE_MODULES if lowest <= version]
    if not usable:
        pytest.skip(f"needs Node.js {min(NODE_MODULES)[0]}")
    packages = [f"{name}@{NODE_MODULES[max(usable)]}" for name in ("testcontainers", "@testcontainers/kafka")]
    shutil.copy(HERE / "node/kafka.mjs", tmp_path)
    npm = ("npm", "install", "--no-save", "--no-package-lock", "--ignore-scripts", "--silent", "--prefix", ".")
    run(*npm, *packages, KAFKAJS, variables={}, folder=tmp_path)
    assert "read 100 records" in run("node", "kafka.mjs", image, variables={}, folder=tmp_path)


def test_python(image: str) -> None:
    with KafkaContainer(image).with_kraft() as kafka:
        servers = kafka.get_bootstrap_server()
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
        assert sorted(written_and_read(servers)) == [str(number).encode() for number in range(10)]
