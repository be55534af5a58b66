"""kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka import KafkaConsumer, KafkaProducer

from tests.wire.clients import Record
from tests.wire.clients.halfway import HalfRead, Halfway


class KafkaPythonClient:
    name = "kafka-python"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        halfway: Callable[[], None] = lambda: None,
    ) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            enable_idempotence=True,
            acks="all",
            compression_type=None if codec == "none" else codec,
            linger_ms=2,
            reconnect_backoff_max_ms=200,
            retry_backoff_ms=50,
        )
        acknowledged: list[int] = []
        middle = Halfway(len(records), halfway)

        def reported(index: int, _metadata: object) -> None:
            acknowledged.append(index)
            middle.reached(len(acknowledged))

        try:
            for index, (key, value) in enumerate(records):
                future = producer.send(topic, value=value, key=key)
                future.add_callback(reported, index)
            producer.flush(timeout=60)
            middle.join()
        finally:
            producer.close(timeout=10)
        return acknowledged

    def consume(
        self, bootstrap: str, topic: str, count: int, *, group: str, halfway: Callable[[], None] = lambda: None
    ) -> list[tuple[int, int, Record]]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=30_000,
            max_poll_records=500,
        )
        found: list[tuple[int, int, Record]] = []
        middle = HalfRead(count, halfway)
        try:
            for message in consumer:
                found.append((message.partition, message.offset, (message.key, message.value)))
                middle.reached(len(found))
                if len(found) == count:
                    break
            assert len(found) == count, f"only {len(found)} of {count} records came"
            consumer.commit()
        finally:
            consumer.close(autocommit=False)
        return found
