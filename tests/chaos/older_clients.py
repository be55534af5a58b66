"""The clients under chaos: writers at acks=all to every partition, and a reader; they note what became of it."""

from __future__ import annotations

import itertools
import math
import threading
import time
from typing import Any, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaProducer

from milena.lab.histories.events import FinalLog, Poll, RequestOutcome, Send
from tests.chaos.journal import Journal

PACE = 0.005
"""Seconds between two records of a client."""
READ_AGAIN = 3.0
"""Seconds after which a reader that reads again begins anew."""
DELIVERY_MS = 120_000
"""Longer than any fault lasts: a client goes on by itself."""


class Writer(Protocol):
    name: str

    def send(self, topic: str, partition: int, value: str) -> None: ...

    def finish(self) -> None:
        """Wait until the outcome of everything is known."""
        ...


class ConfluentWriter:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str, journal: Journal) -> None:
        self._journal = journal
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
        self._producer = Producer(settings | {"reconnect.backoff.max.ms": 500, "message.timeout.ms": DELIVERY_MS})

    def send(self, topic: str, partition: int, value: str) -> None:
        begun = self._journal.now()

        def told(error: Any, message: Any) -> None:
            outcome = RequestOutcome.OK if error is None else RequestOutcome.UNKNOWN
            offset = message.offset() if error is None else -1
            self._journal.note(_send(self.name, topic, partition, value, begun, self._journal.now(), outcome, offset))

        self._producer.produce(topic, value, partition=partition, on_delivery=told)
        self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(60) == 0


class KafkaPythonWriter:
    name = "kafka-python"

    def __init__(self, bootstrap: str, journal: Journal) -> None:
        self._journal = journal
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            enable_idempotence=True,
            acks="all",
            linger_ms=2,
            reconnect_backoff_max_ms=500,
            retry_backoff_ms=50,
            request_timeout_ms=10_000,
            delivery_timeout_ms=DELIVERY_MS,
        )

    def send(self, topic: str, partition: int, value: str) -> None:
        begun = self._journal.now()

        def told(outcome: RequestOutcome, offset: int) -> None:
            self._journal.note(_send(self.name, topic, partition, value, begun, self._journal.now(), outcome, offset))

        future = self._producer.send(topic, value=value.encode(), partition=partition)
        future.add_callback(lambda metadata: told(RequestOutcome.OK, metadata.offset))
        future.add_errback(lambda _error: told(RequestOutcome.UNKNOWN, -1))

    def finish(self) -> None:
        self._producer.flush(timeout=60)
        self._producer.close(timeout=10)


def _send(
    name: str, topic: str, partition: int, value: str, begun: float, ended: float, outcome: RequestOutcome, offset: int
) -> Send:
    return Send((topic, partition), value, begun, ended, outcome, offset, lane=f"{name}/{partition}")


class Load:
    """A writer in its own thread."""

    def __init__(self, writer: Writer, topic: str, partitions: int) -> None:
        self.writer = writer
        self._topic, self._partitions = topic, partitions
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=writer.name)
        self._thread.start()

    def _run(self) -> None:
        try:
            number = 0
            while not self._stop.wait(PACE):
                partition = number % self._partitions
                self.writer.send(self._topic, partition, f"{self.writer.name} {number:07d}")
                number += 1
            self.writer.finish()
        except BaseException as error:  # handed to the test's thread in stop
            self._error = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


class Reader:
    """Reads all partitions from their beginning, in its own thread, and notes each poll. ``again``: begins anew every
    few seconds, so that it also reads what has left the brokers' disks."""

    def __init__(self, bootstrap: str, journal: Journal, topic: str, partitions: int, *, again: bool = False) -> None:
        self._journal = journal
        self._places = [(topic, partition) for partition in range(partitions)]
        self._stop = threading.Event()
        self._bootstrap = bootstrap
        self._longest = READ_AGAIN if again else math.inf
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def _run(self) -> None:
        for session in itertools.count():
            if self._stop.is_set():
                return
            consumer = reading(self._bootstrap)
            consumer.assign([TopicPartition(*place, 0) for place in self._places])
            end = time.monotonic() + self._longest
            while not self._stop.is_set() and time.monotonic() < end:
                found = records(consumer.consume(500, timeout=0.2))
                for place, read in found.items():
                    self._journal.note(Poll(place, f"reader-{session}", self._journal.now(), tuple(read)))
            consumer.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def reading(bootstrap: str) -> Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "check.crcs": True}
    return Consumer({**settings, "auto.offset.reset": "error", "reconnect.backoff.max.ms": 500, "log_level": 0})


def records(messages: list[Any]) -> dict[tuple[str, int], list[tuple[int, str]]]:
    """By partition. Errors that pass by themselves are none: the next poll goes on."""
    found: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for message in messages:
        if message.error() is None:
            place = (message.topic(), message.partition())
            found.setdefault(place, []).append((message.offset(), message.value().decode()))
    return found


def final_logs(bootstrap: str, topic: str, partitions: int, seconds: float = 60) -> list[FinalLog]:
    """Every partition from its beginning to its end, as it is when everything is mended."""
    logs = []
    for partition in range(partitions):
        consumer = reading(bootstrap)
        place = TopicPartition(topic, partition)
        start, end = consumer.get_watermark_offsets(place, timeout=seconds)
        consumer.assign([TopicPartition(topic, partition, start)])
        read: list[tuple[int, str, int]] = []
        deadline = time.monotonic() + seconds
        while len(read) < end - start:
            assert time.monotonic() < deadline, f"{topic}-{partition}: {len(read)} of {end - start} records came"
            messages: list[Any] = consumer.consume(1000, timeout=1)
            for message in messages:
                if message.error() is None:
                    read.append((message.offset(), message.value().decode(), message.leader_epoch() or 0))
        consumer.close()
        logs.append(FinalLog((topic, partition), tuple(read), start, dense=True))
    return logs
