"""A source of Kafka Connect with exactly-once support: workers and brokers are killed, and each record is there
once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition

from milena.testing.local_cluster import LocalCluster
from milena.up.ports import free
from tests.oracle.conftest import REPLICATED
from tests.oracle.kafka import jars, java
from tests.wire.admin import Places
from tests.wire.waiting import wait_until

SOURCE: Final = Path(__file__).with_name("CountingSource.java")
WORKER: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
HOST: Final = "127.0.0.1"
TOPIC: Final = "numbers"
COUNT: Final = 960
PACE: Final = 200
"""Records a second: the source runs while workers and brokers are killed."""
SETTINGS: Final = {  # without exactly-once support the next worker would begin again: offsets are flushed rarely
    "group.id": "workers",
    "exactly.once.source.support": "enabled",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "offset.storage.partitions": "3",
    "status.storage.partitions": "1",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "60000",
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
    "topic": TOPIC,
    "count": str(COUNT),
    "pace": str(PACE),
    "exactly.once.support": "required",
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


class Worker:
    """A worker of the cluster of Connect, which is started again with the same settings after it was killed."""

    def __init__(self, settings: Path, port: int, said: Path) -> None:
        self._command = java(WORKER, str(settings), heap="384m")
        self._url = f"http://{HOST}:{port}/connectors"
        self._said = said
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._said.open("a") as said:
            self._process = subprocess.Popen(self._command, stdout=said, stderr=said)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def put(self, name: str, config: dict[str, str]) -> bool:
        """Make a connector. Returns whether the worker has done so."""
        body = json.dumps(config).encode()
        request = Request(f"{self._url}/{name}/config", body, {"Content-Type": "application/json"}, method="PUT")
        try:
            with urlopen(request, timeout=20) as answer:
                return bool(answer.status < 300)
        except (URLError, OSError):
            return False


@contextmanager
def working(folder: Path, plugin: Path, bootstrap: str) -> Iterator[Worker]:
    (port,) = free(HOST, 1)
    more = {
        "bootstrap.servers": bootstrap,
        "listeners": f"http://{HOST}:{port}",
        "plugin.path": str(plugin),
    }
    settings = folder / "worker.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in {**SETTINGS, **more}.items()))
    worker = Worker(settings, port, folder / "worker.out")
    worker.start()
    try:
        yield worker
    finally:
        worker.kill()


def test_each_record_of_a_source_is_there_once_although_workers_and_brokers_are_killed(
    tmp_path: Path, plugin: Path
) -> None:
    overrides = REPLICATED | QUICK
    with (
        LocalCluster.start(tmp_path / "cluster", brokers=3, topics=[f"{TOPIC}:2:3"], overrides=overrides) as cluster,
        working(tmp_path, plugin, cluster.bootstrap) as worker,
    ):
        wait_until(lambda: worker.put(TOPIC, CONNECTOR), "the worker to make the connector", 90)
        read = Numbers(cluster.bootstrap)
        one, other, _ = cluster.brokers
        wait_until(lambda: read.count() >= COUNT // 6, "the source to begin", 60)
        cluster.kill(one.id)
        wait_until(lambda: read.count() >= COUNT // 3, "the source to continue without the broker", 60)
        worker.kill()
        cluster.restart(one.id)
        in_sync(cluster, one.id)
        worker.start()
        wait_until(lambda: read.count() >= COUNT // 2, "the source to continue with the next worker", 90)
        cluster.kill(other.id)
        cluster.restart(other.id)
        wait_until(lambda: read.count() >= COUNT, "all numbers to be there", 90)
        assert read.values == {number: [str(one) for one in range(number, COUNT, 2)] for number in (0, 1)}
        read.close()


def in_sync(cluster: LocalCluster, broker: int) -> None:
    places = Places(cluster.bootstrap, TOPIC)
    wait_until(lambda: places.all_have(broker), f"broker {broker} to be in sync", 60)


class Numbers:
    """What a consumer with read_committed finds in the topic, by partition."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 0, "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in (0, 1)])
        self.values: dict[int, list[str]] = {0: [], 1: []}

    def count(self) -> int:
        """Read further, and return how many there are."""
        for message in self._consumer.consume(10_000, 0.2):
            assert message.error() is None, message.error()
            self.values[message.partition() or 0].append((message.value() or b"").decode())
        return sum(map(len, self.values.values()))

    def close(self) -> None:
        self._consumer.close()
