"""Load on real processes while nodes are killed: a producer in a thread, and a consumer of all records at the end."""

from __future__ import annotations

import threading
from collections import Counter

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.wire.waiting import wait_until

PARTITIONS = 3


class Load:
    """An idempotent producer of numbered records to ``PARTITIONS`` partitions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 60_000}
        settings |= {"retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "linger.ms": 1, "log_level": 0}
        self._producer = Producer(settings)
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

    def wait_for(self, writes: int) -> None:
        """Wait until so many more writes are acknowledged."""
        enough = len(self.acknowledged) + writes
        wait_until(lambda: len(self.acknowledged) > enough, f"{writes} more writes")

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
    """Return how often each number is in the topic."""
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer(settings)
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
