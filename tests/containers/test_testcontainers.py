"""Testcontainers: Milena's class for Python, and the Java class for Kafka's image.

The tests run without Testcontainers' reaper, whose image would have to be pulled. They check that no container
is left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from testcontainers.core.config import testcontainers_config
from testcontainers.core.network import Network

from milena.testing.containers import MilenaContainer
from tests.containers.engine import IMAGE, KCAT, docker, needs
from tests.wire.command import milena
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
POM = Path(__file__).parent / "java" / "pom.xml"


@pytest.fixture(autouse=True)
def without_reaper(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(docker("ps", "-a", "-q").split())
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    yield
    left = docker("ps", "-a", "-q", "--filter", "label=org.testcontainers").split()
    assert not set(left) - before


def written_and_read(bootstrap: str) -> list[bytes]:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(10):
        producer.produce(topic, str(number).encode())
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []

    def all_read() -> bool:
        record = consumer.poll(0.5)
        if record is not None and record.error() is None:
            found.append(record.value() or b"")
        return len(found) == 10

    wait_until(all_read, "ten records")
    consumer.close()
    return found


def test_a_client_writes_and_reads_records_in_the_container() -> None:
    with MilenaContainer(IMAGE, settings={"num.partitions": "3"}) as kafka:
        assert sorted(written_and_read(kafka.get_bootstrap_server())) == [str(number).encode() for number in range(10)]
        described = milena("topic", "list", "-b", kafka.get_bootstrap_server()).out
        assert " 3 " in next(line for line in described.splitlines() if line.startswith("t-"))


def test_a_container_in_the_same_network_reaches_it() -> None:
    needs(KCAT)
    with Network() as network, MilenaContainer(IMAGE).with_network(network) as kafka:
        where = kafka.get_network_bootstrap_server()
        found = docker("run", "--rm", "--network", network.name, KCAT, "kcat", "-b", where, "-L")
        assert f"broker 1 at {where}" in found


def test_a_refused_setting_raises_an_error_with_its_message_at_once() -> None:
    with (
        pytest.raises(RuntimeError, match=r"num\.partitions"),
        MilenaContainer(IMAGE, settings={"num.partitions": "x"}),
    ):
        pass


@pytest.mark.skipif(shutil.which("mvn") is None or shutil.which("java") is None, reason="needs Java and Maven")
def test_javas_class_for_kafkas_image_runs_this_image(tmp_path: Path) -> None:
    variables = {**os.environ, "TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_CHECKS_DISABLE": "true"}
    # In a container, Testcontainers would otherwise start an image that cannot be pulled.
    variables["TESTCONTAINERS_HOST_OVERRIDE"] = "127.0.0.1"
    variables |= {"DOCKER_HOST": os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")}
    command = ["mvn", "-q", "-B", "-f", str(POM), f"-Dtarget={tmp_path}", f"-Dimage={IMAGE}", "test"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = tmp_path.glob("surefire-reports/*.xml")
    assert 'tests="1"' in report.read_text() and 'skipped="0"' in report.read_text()
