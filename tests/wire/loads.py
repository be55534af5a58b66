"""Clients of librdkafka that write and read in their own threads and record each operation in a shared history."""

from __future__ import annotations

import itertools
import math
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from milena.lab.histories.events import Event, FinalLog, Poll, RequestOutcome, Send

PACE = 0.005
"""Seconds between two records of a writer."""
READ_AGAIN = 3.0
"""Seconds after which a reader with ``again`` starts from the beginning."""
DELIVERY_MS = 120_000
"""delivery.timeout.ms, longer than any node is down: librdkafka retries until then."""


class Journal:
    """A history that several threads append to. ``now`` is its clock: seconds since it was created."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self.events: list[Event] = []

    def now(self) -> float:
        return time.monotonic() - self._begun

    def note(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)


class Writer:
    """Writes to all partitions in turn with acks=all, until ``stop``."""

    def __init__(self, bootstrap: str, journal: Journal, topic: str, partitions: int) -> None:
        self._journal = journal
        self._topic, self._partitions = topic, partitions
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
        self._producer = Producer(settings | {"reconnect.backoff.max.ms": 500, "message.timeout.ms": DELIVERY_MS})
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"writer of {topic}")
        self._thread.start()

    def stop(self) -> None:
        """Return when the outcome of every record is known. Raises the error that ended the thread early, if any."""
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for number in itertools.count():
                if self._stop.wait(PACE):
                    break
                self._send(number % self._partitions, f"{self._topic} {number:07d}")
            assert self._producer.flush(60) == 0
        except BaseException as error:  # raised by stop in the test's thread
            self._error = error

    def _send(self, partition: int, value: str) -> None:
        begun = self._journal.now()

        def delivered(error: Any, message: Any) -> None:
            outcome = RequestOutcome.OK if error is None else RequestOutcome.UNKNOWN
            offset = message.offset() if error is None else -1
            place, lane = (self._topic, partition), f"writer/{partition}"
            self._journal.note(Send(place, value, begun, self._journal.now(), outcome, offset, lane=lane))

        self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
        self._producer.poll(0)


class Reader:
    """Reads all partitions from their beginning in a thread of its own. ``again``: starts from the beginning every few
    seconds, so that it also reads segments that are only in the tier. ``stop`` then reads everything once more, because
    on a slow machine no session may have reached the end."""

    def __init__(self, bootstrap: str, journal: Journal, topic: str, partitions: int, *, again: bool = False) -> None:
        self._journal = journal
        self._places = [(topic, partition) for partition in range(partitions)]
        self._stop = threading.Event()
        self._bootstrap = bootstrap
        self._again = again
        self._thread = threading.Thread(target=self._run, name=f"reader of {topic}")
        self._thread.start()

    def _run(self) -> None:
        for session in itertools.count():
            if self._stop.is_set():
                return
            consumer = _consumer(self._bootstrap)
            consumer.assign([TopicPartition(*place, 0) for place in self._places])
            end = time.monotonic() + (READ_AGAIN if self._again else math.inf)
            while not self._stop.is_set() and time.monotonic() < end:
                found = _records(consumer.consume(500, timeout=0.2))
                for place, read in found.items():
                    self._journal.note(Poll(place, f"reader-{session}", self._journal.now(), tuple(read)))
            consumer.close()

    def stop(self) -> None:
        """Read everything once more and end. All writers must have stopped before."""
        self._stop.set()
        self._thread.join()
        if self._again:
            topic = self._places[0][0]
            for log in final_logs(self._bootstrap, topic, len(self._places)):
                read = tuple((offset, value) for offset, value, _ in log.records)
                self._journal.note(Poll(log.partition, "last reader", self._journal.now(), read))


def final_logs(bootstrap: str, topic: str, partitions: int, seconds: float = 60) -> list[FinalLog]:
    """Return all records of each partition. Raises AssertionError if they are not read within the time limit."""
    logs = []
    for partition in range(partitions):
        consumer = _consumer(bootstrap)
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


def _consumer(bootstrap: str) -> Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "check.crcs": True}
    return Consumer({**settings, "auto.offset.reset": "error", "reconnect.backoff.max.ms": 500, "log_level": 0})


def _records(messages: list[Any]) -> dict[tuple[str, int], list[tuple[int, str]]]:
    """Return (offset, value) by partition. Errors are skipped: librdkafka retries by itself."""
    found: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for message in messages:
        if message.error() is None:
            place = (message.topic(), message.partition())
            found.setdefault(place, []).append((message.offset(), message.value().decode()))
    return found
