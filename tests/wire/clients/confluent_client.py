"""confluent-kafka: librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer

from tests.wire.clients import Record
from tests.wire.clients.halfway import HalfRead, Halfway


class ConfluentClient:
    name = "confluent-kafka"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        halfway: Callable[[], None] = lambda: None,
    ) -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 2,
                "batch.num.messages": 200,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "queue.buffering.max.messages": 1000,
                "log_level": 0,
            }
        )
        acknowledged: list[int] = []
        middle = Halfway(len(records), halfway)

        def reporter(index: int) -> Callable[[Any, Any], None]:
            def reported(error: Any, _message: Any) -> None:
                if error is None:
                    acknowledged.append(index)
                    middle.reached(len(acknowledged))

            return reported

        for index, (key, value) in enumerate(records):
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=reporter(index))
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(60) == 0
        middle.join()
        return acknowledged

    def consume(
        self, bootstrap: str, topic: str, count: int, *, group: str, halfway: Callable[[], None] = lambda: None
    ) -> list[tuple[int, int, Record]]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        found: list[tuple[int, int, Record]] = []
        middle = HalfRead(count, halfway)
        try:
            while len(found) < count:
                messages = consumer.consume(min(500, count - len(found)), timeout=30)
                assert messages, f"only {len(found)} of {count} records came"
                for message in messages:
                    partition, offset = message.partition(), message.offset()
                    assert message.error() is None, message.error()
                    assert partition is not None and offset is not None
                    found.append((partition, offset, (message.key(), message.value())))
                middle.reached(len(found))
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return found
