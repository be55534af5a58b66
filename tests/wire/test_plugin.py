"""The pytest plugin in another project, whose modules have the names of Milena's packages.

tests/wire/test_wheel.py tests the same with the installed wheel, in a separate environment.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from milena.testing.local_cluster import LIMIT
from milena.up.processes import runs

FOREIGN = {
    "storage.py": "WHOSE = 'the project'\n",
    "runtime.py": "WHOSE = 'the project'\n",
    "noting.py": """
import pathlib

def note(cluster):
    with pathlib.Path("pids").open("a") as file:
        print(cluster.pid, *(node.pid for node in cluster.nodes.values()), file=file)
""",
}


def run_project(folder: Path, tests: str, *, settings: str = "") -> tuple[int, str]:
    """Run pytest in the project, in a separate process; return exit code and output."""
    for name, text in {**FOREIGN, "test_it.py": tests, "pytest.ini": f"[pytest]\n{settings}\n"}.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=2 * LIMIT, check=False)
    return done.returncode, done.stdout + done.stderr


def noted(folder: Path) -> list[int]:
    """Return the process ids that the project's tests have written to a file."""
    return [int(pid) for pid in re.findall(r"\d+", (folder / "pids").read_text())]


@pytest.mark.timeout(240)
def test_clusters_of_a_project_have_ended_after_its_tests(tmp_path: Path) -> None:
    tests = """
from confluent_kafka import Consumer, Producer
import runtime, storage
from noting import note

def test_the_projects_modules_are_its_own(milena_cluster):
    assert storage.WHOSE == runtime.WHOSE == "the project"
    note(milena_cluster)

def test_one_cluster_for_all_tests(milena_cluster):
    assert len(milena_cluster.brokers) == 2
    producer = Producer({"bootstrap.servers": milena_cluster.bootstrap})
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0

def test_its_data_is_seen_by_the_next_test(milena_cluster):
    consumer = Consumer({
        "bootstrap.servers": milena_cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
    })
    consumer.subscribe(["orders"])
    (found,) = consumer.consume(1, timeout=30)
    assert found.value() == b"one"
    consumer.close()

def test_a_cluster_of_its_own_that_suffers(milena_start):
    cluster = milena_start(overrides={"num.partitions": "2"}, topics=["t:3:1"])
    cluster.kill(1)
    assert cluster.nodes[1].pid is None
    cluster.restart(1)
    assert '"node": 1' in cluster.log(1)
    note(cluster)
"""
    code, output = run_project(tmp_path, tests, settings="milena_brokers = 2")
    assert (code, "4 passed" in output) == (0, True), output
    assert len(set(noted(tmp_path))) == 4 + 3
    assert not any(map(runs, noted(tmp_path)))


def test_clusters_of_failed_tests_have_ended_too(tmp_path: Path) -> None:
    tests = """
from noting import note

def test_that_fails(milena_start):
    note(milena_start())
    assert False
"""
    code, output = run_project(tmp_path, tests)
    assert (code, "1 failed" in output) == (1, True), output
    assert len(noted(tmp_path)) == 3
    assert not any(map(runs, noted(tmp_path)))


def test_the_cluster_behaves_like_the_release_of_the_project(tmp_path: Path) -> None:
    tests = """
from pathlib import Path

def test_release(milena_cluster):
    assert "kafka.version=4.2\\n" in Path(milena_cluster.directory, "broker-1", "server.properties").read_text()
"""
    code, output = run_project(tmp_path, tests, settings="milena_kafka_version = 4.2.1")
    assert code == 0, output


@pytest.mark.parametrize("option", ["ini", "command line"])
def test_with_a_reset_each_test_gets_the_cluster_like_a_new_one(tmp_path: Path, option: str) -> None:
    tests = """
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from noting import note

@pytest.mark.parametrize("number", [1, 2])
def test_of_one_topic(milena_cluster, number):
    client = AdminClient({"bootstrap.servers": milena_cluster.bootstrap})
    assert not client.list_topics(timeout=30).topics
    producer = Producer({"bootstrap.servers": milena_cluster.bootstrap})
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0
    note(milena_cluster)
"""
    code, output = run_project(
        tmp_path, tests, settings="milena_reset = true" if option == "ini" else "addopts = --milena-reset"
    )
    assert (code, "2 passed" in output) == (0, True), output
    assert len(set(noted(tmp_path))) == 3, "both tests have used the same processes"


def test_wrong_use_of_the_plugin_is_reported(tmp_path: Path) -> None:
    tests = """
def test_brokers(milena_cluster):
    pass

def test_override(milena_start):
    milena_start(overrides={"num.partitons": "3"})
"""
    code, output = run_project(tmp_path, tests, settings="milena_brokers = few")
    assert code == 1
    assert "milena_brokers = few: not a number of at least 1" in output
    assert "unknown configuration key 'num.partitons'; did you mean 'num.partitions'?" in output


@pytest.mark.slow
def test_with_xdist_each_worker_has_its_own_pool_and_prepared_state(tmp_path: Path) -> None:
    tests = """
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from noting import note

def topics_of(cluster):
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return set(client.list_topics(timeout=30).topics)

@pytest.mark.parametrize("number", range(4))
def test_of_one_topic(milena_cluster, number):
    assert topics_of(milena_cluster) == set()
    producer = Producer({"bootstrap.servers": milena_cluster.bootstrap})
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0
    note(milena_cluster)

@pytest.fixture(scope="session")
def shop(milena_snapshot):
    return milena_snapshot(lambda cluster: None, topics=["prepared:1:1"])

@pytest.mark.parametrize("number", range(2))
def test_of_a_prepared_state(shop, number):
    cluster = shop.restore()
    assert topics_of(cluster) == {"prepared"}
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("more", b"one")
    assert producer.flush(30) == 0
    note(cluster)
"""
    code, output = run_project(tmp_path, tests, settings="milena_reset = true\nmilena_pool = 2\naddopts = -n 2")
    assert (code, "6 passed" in output) == (0, True), output
    assert not any(map(runs, noted(tmp_path)))
