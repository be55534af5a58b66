"""A source of Kafka Connect with exactly-once support: workers and brokers are killed, and each record is there
once. As a control, the same source runs beside it without that support: its records are written again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition

from milena.protocol.records.hashing import partition_for_group
from milena.testing.local_cluster import LocalCluster
from milena.up.ports import free
from tests.oracle.conftest import REPLICATED
from tests.oracle.kafka import jars, java
from tests.wire.admin import Places
from tests.wire.waiting import wait_until

SOURCE: Final = Path(__file__).with_name("CountingSource.java")
WORKER: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
HOST: Final = "127.0.0.1"
EXACT, CONTROL = "exact", "control"
"""The names of the two jobs, which are also their topics and groups."""
COUNT: Final = 960
PACE: Final = 200
"""Records a second: the source runs while workers and brokers are killed."""
SETTINGS: Final = {  # without exactly-once support the next worker begins again: offsets are not flushed in a run
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.storage.partitions": "3",
    "status.storage.partitions": "1",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "600000",
}
QUICK: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "300",
}
"""Of brokers."""
CONNECTOR: Final = {
    "connector.class": "CountingSource",
    "tasks.max": "1",
    "count": str(COUNT),
    "pace": str(PACE),
    "transaction.boundary": "poll",
}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def plugin(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the plugins, with the source."""
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed")
    folder = tmp_path_factory.mktemp("plugins")
    made = folder / "counting"
    command = ["javac", "-nowarn", "-cp", f"{jars()}/*", "-d", str(made), str(SOURCE)]
    subprocess.run(command, check=True)
    services = made / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "org.apache.kafka.connect.source.SourceConnector").write_text("CountingSource\n")
    return folder


class Job:
    """The source on a worker of its own, which is started again with the same settings after it was killed, and what a
    consumer with read_committed finds in its topic."""

    def __init__(self, name: str, folder: Path, plugin: Path, bootstrap: str) -> None:
        self.name = name
        self._exact = name == EXACT
        (port,) = free(HOST, 1)
        more = {
            "bootstrap.servers": bootstrap,
            "listeners": f"http://{HOST}:{port}",
            "plugin.path": str(plugin),
            "group.id": name,
            "exactly.once.source.support": "enabled" if self._exact else "disabled",
            **{f"{kind}.storage.topic": f"{name}-{kind}" for kind in ("config", "offset", "status")},
        }
        settings = folder / f"{name}.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in {**SETTINGS, **more}.items()))
        self._command = java(WORKER, str(settings), heap="384m")
        self._url = f"http://{HOST}:{port}/connectors/{name}/config"
        self._said = folder / f"{name}.out"
        self._process: subprocess.Popen[bytes] | None = None
        self.numbers = Numbers(bootstrap, name)

    def start(self) -> None:
        with self._said.open("a") as said:
            self._process = subprocess.Popen(self._command, stdout=said, stderr=said)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.kill()
        self.numbers.close()

    def make(self) -> bool:
        """Make the connector. Returns whether the worker has done so."""
        support = "required" if self._exact else "requested"
        body = json.dumps(CONNECTOR | {"topic": self.name, "exactly.once.support": support}).encode()
        request = Request(self._url, body, {"Content-Type": "application/json"}, method="PUT")
        try:
            with urlopen(request, timeout=20) as answer:
                return bool(answer.status < 300)
        except (URLError, OSError):
            return False


@contextmanager
def both(folder: Path, plugin: Path, bootstrap: str) -> Iterator[tuple[Job, Job]]:
    """The job with exactly-once support and the control, with their connectors."""
    jobs = Job(EXACT, folder, plugin, bootstrap), Job(CONTROL, folder, plugin, bootstrap)
    try:
        for job in jobs:
            job.start()
        for job in jobs:
            wait_until(job.make, f"the worker of {job.name} to make the connector", 90)
        yield jobs
    finally:
        for job in jobs:
            job.close()


def test_each_record_of_a_source_is_there_once_although_workers_and_brokers_are_killed(
    tmp_path: Path, plugin: Path
) -> None:
    """The control's coordinator is not killed before its worker: a worker without a coordinator ends its tasks, and
    stores their offsets."""
    topics = [f"{name}:2:3" for name in (EXACT, CONTROL)]
    with (
        LocalCluster.start(tmp_path / "cluster", brokers=3, topics=topics, overrides=REPLICATED | QUICK) as cluster,
        both(tmp_path, plugin, cluster.bootstrap) as jobs,
    ):
        exact, control = jobs
        continued(jobs, COUNT // 6, "the sources to begin")
        spared = coordinator(cluster, CONTROL)
        one, other = (broker.id for broker in cluster.brokers if broker.id != spared)
        cluster.kill(one)
        continued(jobs, COUNT // 3, "the sources to continue without the broker")
        for job in jobs:
            job.kill()
        cluster.restart(one)
        for job in jobs:
            in_sync(cluster, job.name, one)
            job.start()
        continued([exact], COUNT // 2, "the source to continue with the next worker")
        wait_until(control.numbers.repeated, "the control to write numbers again", 90)
        cluster.kill(other)
        cluster.restart(other)
        continued([exact], COUNT, "all numbers to be there")
        assert exact.numbers.values == {number: [str(one) for one in range(number, COUNT, 2)] for number in (0, 1)}


def continued(jobs: Sequence[Job], count: int, what: str) -> None:
    """Wait until each job has written so many records."""
    for job in jobs:
        wait_until(lambda job=job: job.numbers.count() >= count, f"{what} ({job.name})", 90)  # type: ignore[misc]


def coordinator(cluster: LocalCluster, group: str) -> int:
    """The broker that coordinates a group of workers."""
    offsets = Places(cluster.bootstrap, "__consumer_offsets").now()
    return offsets[partition_for_group(group, len(offsets))].leader


def in_sync(cluster: LocalCluster, topic: str, broker: int) -> None:
    places = Places(cluster.bootstrap, topic)
    wait_until(lambda: places.all_have(broker), f"broker {broker} to be in sync", 60)


class Numbers:
    """What a consumer with read_committed finds in a topic, by partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 0, "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
        self.values: dict[int, list[str]] = {0: [], 1: []}

    def count(self) -> int:
        """Read further, and return how many there are."""
        for message in self._consumer.consume(10_000, 0.2):
            assert message.error() is None, message.error()
            self.values[message.partition() or 0].append((message.value() or b"").decode())
        return sum(map(len, self.values.values()))

    def repeated(self) -> bool:
        """Read further, and return whether a partition has a number more than once."""
        self.count()
        return any(len(set(found)) < len(found) for found in self.values.values())

    def close(self) -> None:
        self._consumer.close()
