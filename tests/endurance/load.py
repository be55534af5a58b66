"""The mixed load: each kind of work runs in its own thread until ``Load.stop``."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

PLAIN: Final = "endurance-plain"
TIERED: Final = "endurance-tiered"
PARTITIONS: Final = 6
TIERED_PARTITIONS: Final = 2
RECORDS_PER_SECOND: Final = 300
VALUE: Final = bytes(1000)
TIERED_VALUE: Final = bytes(10_000)


class Load:
    """All kinds of work. ``done`` counts completed operations by kind, ``failures`` errors by kind and message."""

    def __init__(self, bootstrap: str, brokers: Sequence[int], metrics: Sequence[str]) -> None:
        self.done: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._brokers = tuple(brokers)
        self._metrics = tuple(metrics)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def prepare(self) -> None:
        limits = {"segment.bytes": "1048576", "min.insync.replicas": "2"}
        plain = limits | {"retention.bytes": "8388608"}
        tiered = limits | {
            "remote.storage.enable": "true",
            "local.retention.bytes": "2097152",
            "retention.bytes": "67108864",
        }
        topics = [NewTopic(PLAIN, PARTITIONS, 3, config=plain), NewTopic(TIERED, TIERED_PARTITIONS, 3, config=tiered)]
        for made in self._admin.create_topics(topics).values():
            made.result(30)

    def start(self) -> None:
        kinds: tuple[Callable[[], None], ...] = (
            self._produce,
            self._produce_tiered,
            self._read_the_tier,
            self._make_and_delete_topics,
            self._change_configs,
            self._move,
            self._make_and_delete_groups,
            self._scrape,
        )
        for kind in kinds:
            self._spawn(kind)
        for number in range(3):
            self._spawn(lambda number=number: self._consume(number))  # type: ignore[misc]

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _spawn(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=getattr(work, "__name__", "load"))
        self._threads.append(thread)
        thread.start()

    def _every(self, seconds: float, kind: str, work: Callable[[], object]) -> None:
        """Call ``work`` every ``seconds`` until the load is stopped; errors are counted and do not end the loop."""
        while not self._stopping.wait(seconds):
            try:
                work()
                self.done[kind] += 1
            except (KafkaException, OSError, subprocess.SubprocessError) as error:
                self.failures[f"{kind}: {type(error).__name__} {str(error)[:80]}"] += 1

    def _producer(self) -> Producer:
        return Producer({"bootstrap.servers": self._bootstrap, "acks": "all", "enable.idempotence": True})

    def _produce(self) -> None:
        producer = self._producer()

        def tick() -> None:
            for at in range(RECORDS_PER_SECOND // 10):
                producer.produce(PLAIN, VALUE, partition=at % PARTITIONS, on_delivery=self._on_delivery)
            producer.poll(0)

        self._every(0.1, "batches", tick)
        producer.flush(30)

    def _produce_tiered(self) -> None:
        producer = self._producer()

        def tick() -> None:
            for at in range(20):
                producer.produce(TIERED, TIERED_VALUE, partition=at % TIERED_PARTITIONS, on_delivery=self._on_delivery)
            producer.poll(0)

        self._every(0.5, "tiered batches", tick)
        producer.flush(30)

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is None:
            self.done["records"] += 1
        else:
            self.failures[f"record: {error.name()}"] += 1

    def _consume(self, number: int) -> None:
        """A member of the one consumer group; the last member leaves and rejoins repeatedly."""
        lives_for = 20.0 if number == 2 else 1e9
        while not self._stopping.is_set():
            consumer = self._consumer("endurance-group")
            consumer.subscribe([PLAIN])
            polls = int(lives_for / 0.2)
            while polls > 0 and not self._stopping.is_set():
                polls -= 1
                self.done["consumed"] += len(consumer.consume(500, 0.2))
            consumer.close()
            self._stopping.wait(5)

    def _consumer(self, group: str) -> Consumer:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        return Consumer(settings | {"session.timeout.ms": 10_000, "log_level": 0})

    def _read_the_tier(self) -> None:
        def read() -> None:
            consumer = self._consumer("endurance-reader")
            try:
                low, high = consumer.get_watermark_offsets(TopicPartition(TIERED, 0), 10)
                consumer.assign([TopicPartition(TIERED, 0, low)])
                left = min(high - low, 3000)
                while left > 0 and not self._stopping.is_set():
                    got = consumer.consume(500, 1.0)
                    left -= len(got)
                    self.done["read from the tier"] += len(got)
            finally:
                consumer.close()

        self._every(5, "tier readers", read)

    def _make_and_delete_topics(self) -> None:
        producer = self._producer()

        def churn() -> None:
            name = f"endurance-churn-{self.done['topics made and deleted']}"
            self._admin.create_topics([NewTopic(name, 3, 3)])[name].result(30)
            producer.produce(name, VALUE)
            producer.flush(10)
            self._admin.delete_topics([name])[name].result(30)

        self._every(2, "topics made and deleted", churn)

    def _change_configs(self) -> None:
        def change() -> None:
            entry = ConfigEntry(
                "segment.ms", str(random.randint(10**7, 10**8)), incremental_operation=AlterConfigOpType.SET
            )
            resource = ConfigResource(ConfigResource.Type.TOPIC, PLAIN, incremental_configs=[entry])
            self._admin.incremental_alter_configs([resource])[resource].result(30)

        self._every(3, "configs changed", change)

    def _move(self) -> None:
        def move() -> None:
            order = random.sample(self._brokers, len(self._brokers))
            target = f"{PLAIN}:{random.randrange(PARTITIONS)}={','.join(map(str, order[: random.choice((2, 3))]))}"
            command = [sys.executable, "-m", "milena", "reassign", "start", "-b", self._bootstrap, target]
            subprocess.run(command, check=True, capture_output=True, timeout=60)

        self._every(10, "moves", move)

    def _make_and_delete_groups(self) -> None:
        def churn() -> None:
            name = f"endurance-group-{self.done['groups made and deleted']}"
            consumer = self._consumer(name)
            consumer.commit(offsets=[TopicPartition(PLAIN, 0, 1)], asynchronous=False)
            consumer.close()
            self._admin.delete_consumer_groups([name])[name].result(30)

        self._every(2, "groups made and deleted", churn)

    def _scrape(self) -> None:
        def scrape() -> None:
            for address in self._metrics:
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
                    page.read()

        self._every(10, "scrapes", scrape)
