"""Real processes: leaders are killed under acks=all load; the followers have everything, byte for byte."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from milena.local_cluster import LocalCluster
from tests.wire.admin import create_topic

pytestmark = [pytest.mark.kill, pytest.mark.timeout(180)]

PARTITIONS = 3
KILLS = 3


class Load:
    """An idempotent producer of numbered records, in a thread."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 60_000}
        self._producer = Producer(settings | {"retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "linger.ms": 1})
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.acknowledged: list[int] = []
        self.errors: list[KafkaError] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(90)

    def _write(self) -> None:
        number = 0
        while not self._ended.is_set():
            for _ in range(50):
                self._produce(number)
                number += 1
            self._producer.poll(0.01)
        self._producer.flush(70)

    def _produce(self, number: int) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.errors.append(error)

        self._producer.produce(self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered)


def read_all(bootstrap: str, topic: str) -> Counter[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: Counter[int] = Counter()
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(10)
        assert message is not None, "the log is not to be read"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
        else:
            found[int(message.value() or b"-1")] += 1
    consumer.close()
    return found


def test_three_killed_leaders_lose_nothing_and_come_back(milena_start: Callable[..., LocalCluster], topic: str) -> None:
    cluster = milena_start(brokers=3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replicas=3, config={"min.insync.replicas": "2"})

    def leader_and_isrs() -> tuple[int, list[int]]:
        partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return partitions[0].leader, [len(one.isrs) for one in partitions.values()]

    def wait_for(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 40
        while not condition():
            assert time.monotonic() < deadline, "it did not come about"
            time.sleep(0.05)

    with Load(cluster.bootstrap, topic) as load:
        for _ in range(KILLS):
            enough = len(load.acknowledged) + 3000
            wait_for(lambda enough=enough: len(load.acknowledged) > enough)  # type: ignore[misc]
            killed, _ = leader_and_isrs()
            cluster.kill(killed)
            wait_for(lambda killed=killed: leader_and_isrs()[0] not in (killed, -1))  # type: ignore[misc]
            enough = len(load.acknowledged) + 3000
            wait_for(lambda enough=enough: len(load.acknowledged) > enough)  # type: ignore[misc]
            cluster.restart(killed)
            wait_for(lambda: leader_and_isrs()[1] == [3] * PARTITIONS)
    assert load.errors == []
    found = read_all(cluster.bootstrap, topic)
    assert found == Counter(load.acknowledged)

    folders = [Path(node.log_dirs[0]) for node in cluster.brokers]
    cluster.stop()
    for index in range(PARTITIONS):
        logs = [sorted((folder / f"{topic}-{index}").glob("*.log")) for folder in folders]
        contents = {b"".join(path.read_bytes() for path in paths) for paths in logs}
        assert len(contents) == 1, f"the replicas of partition {index} differ"
