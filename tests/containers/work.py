"""Actions of the tests, most of them on the cluster of the compose file, from this machine."""

from __future__ import annotations

import json
import uuid
from typing import Final

from confluent_kafka import Consumer, Producer

from tests.containers.engine import Project
from tests.wire.command import milena
from tests.wire.waiting import wait_until

INSIDE: Final = "broker-1:9092,broker-2:9092,broker-3:9092"
"""Bootstrap servers for clients in the compose network."""


def bootstrap(cluster: Project) -> str:
    return ",".join(f"localhost:{cluster.variables[f'PORT_{number}']}" for number in (1, 2, 3))


def create(cluster: Project, topic: str) -> None:
    milena("topic", "create", topic, "--partitions", "3", "--replicas", "3", "-b", bootstrap(cluster))


def write(cluster: Project, topic: str, count: int, *, width: int = 0) -> None:
    """Write records 0 to ``count`` - 1, of ``width`` bytes or more, with acks=all."""
    producer = Producer({"bootstrap.servers": bootstrap(cluster), "acks": "all", "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number).zfill(width).encode())
    assert producer.flush(60) == 0


def read(cluster: Project, topic: str) -> list[str]:
    found = milena("consume", topic, "--from-beginning", "--exit", "--json", "-b", bootstrap(cluster)).out
    return [json.loads(line)["value"] for line in found.splitlines()]


def leader(cluster: Project, topic: str) -> int:
    described = json.loads(milena("topic", "describe", topic, "--json", "-b", bootstrap(cluster)).out)
    return int(described[0]["partitions"][0]["leader"])


def written_and_read(bootstrap: str) -> list[bytes]:
    """Write ten records, "0" to "9", to a new topic, and return what a group reads of it."""
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
