"""A Kafka broker beside two of ours under our controller: it follows us and leads us, and all logs are equal."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from milena.local_cluster import LocalCluster
from milena.up.ports import free
from tests.oracle import kafka
from tests.oracle.kafka_node import wait_until_listening
from tests.oracle.tools import TOPICS, Tools

KAFKA = 3
TOPIC = "kin"
LIMIT = 30.0

pytestmark = pytest.mark.timeout(150)


@contextlib.contextmanager
def joined_kafka(cluster: LocalCluster, folder: Path) -> Iterator[Path]:
    """Kafka's broker, once our controller has let it in; its log directory. It is stopped in order at the end."""
    controller = cluster.controller
    meta = Path(controller.log_dirs[0], "meta.properties").read_text().splitlines()
    cluster_id = next(line.partition("=")[2] for line in meta if line.startswith("cluster.id="))
    port = free("127.0.0.1", 1)[0]
    settings = {
        "process.roles": "broker",
        "node.id": KAFKA,
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": folder / "data",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{controller.id}@{next(iter(controller.listeners.values()))}",
    }
    folder.mkdir()
    file, log = folder / "kafka.properties", folder / "kafka.out"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    kafka.tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(file))
    with log.open("w") as out:
        process = subprocess.Popen(kafka.java("kafka.Kafka", str(file), heap="350m"), stdout=out, stderr=out)
    try:
        wait_until_listening(process, ("127.0.0.1", port), log)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        deadline = time.monotonic() + LIMIT
        while KAFKA not in admin.list_topics(timeout=5).brokers:
            assert time.monotonic() < deadline, log.read_text()[-2000:]
        yield folder / "data"
        process.terminate()
        process.wait(LIMIT)
    finally:
        process.kill()
        process.wait()


def test_kafka_follows_us_and_leads_us(tools: Tools, tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path / "milena", brokers=2) as cluster:
        ours = {node.id: Path(node.log_dirs[0]) for node in cluster.brokers}
        with joined_kafka(cluster, tmp_path / "kafka") as data:
            server = ("--bootstrap-server", cluster.bootstrap)
            plan = ("--replica-assignment", "1:2:3,2:3:1,3:1:2", "--config", "min.insync.replicas=3")
            tools(TOPICS, *server, "--create", "--topic", TOPIC, *plan)
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
            for number in range(3000):
                producer.produce(TOPIC, f"record {number}", partition=number % 3)
            assert producer.flush(LIMIT) == 0
            assert TOPIC not in tools(TOPICS, *server, "--describe", "--under-replicated-partitions")
    for partition in range(3):
        folders = [folder / f"{TOPIC}-{partition}" for folder in (*ours.values(), data)]
        first, *others = ({file.name: file.read_bytes() for file in sorted(folder.glob("*.log"))} for folder in folders)
        assert any(first.values()) and all(other == first for other in others), f"logs of {TOPIC}-{partition} differ"
