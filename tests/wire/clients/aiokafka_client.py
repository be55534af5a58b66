"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.wire.clients import Record
from tests.wire.clients.halfway import HalfRead, Halfway


class AiokafkaClient:
    name = "aiokafka"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        halfway: Callable[[], None] = lambda: None,
    ) -> list[int]:
        return asyncio.run(self._produce(bootstrap, topic, records, codec, halfway))

    async def _produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], codec: str, halfway: Callable[[], None]
    ) -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            linger_ms=2,
            retry_backoff_ms=50,
        )
        acknowledged: list[int] = []
        middle = Halfway(len(records), halfway)

        def reported(future: asyncio.Future[object], index: int) -> None:
            if future.exception() is None:
                acknowledged.append(index)
                middle.reached(len(acknowledged))

        await producer.start()
        try:
            for index, (key, value) in enumerate(records):
                future = await producer.send(topic, value=value, key=key)
                future.add_done_callback(lambda future, index=index: reported(future, index))
            async with asyncio.timeout(60):
                await producer.flush()
            await asyncio.to_thread(middle.join)
        finally:
            await producer.stop()
        return acknowledged

    def consume(
        self, bootstrap: str, topic: str, count: int, *, group: str, halfway: Callable[[], None] = lambda: None
    ) -> list[tuple[int, int, Record]]:
        return asyncio.run(self._consume(bootstrap, topic, count, group, halfway))

    async def _consume(
        self, bootstrap: str, topic: str, count: int, group: str, halfway: Callable[[], None]
    ) -> list[tuple[int, int, Record]]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        found: list[tuple[int, int, Record]] = []
        middle = HalfRead(count, halfway)
        await consumer.start()
        try:
            while len(found) < count:
                batches = await consumer.getmany(timeout_ms=30_000, max_records=count - len(found))
                assert batches, f"only {len(found)} of {count} records came"
                for partition, messages in batches.items():
                    found += [
                        (partition.partition, message.offset, (message.key, message.value)) for message in messages
                    ]
                await asyncio.to_thread(middle.reached, len(found))
            await consumer.commit()
        finally:
            await consumer.stop()
        return found
