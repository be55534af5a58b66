"""Clients of compacted topics: a writer of few keys, with tombstones among them, and readers of everything."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Final

from milena.client import admin
from milena.client.batches import Produced
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.client.producer import OutcomeUnknown, Producer
from milena.lab.histories.events import Event
from milena.lab.histories.group_events import RequestOutcome
from milena.lab.histories.keyed import FullRead, KeyedWrite
from milena.lab.world.tiering import TIERED
from milena.lab.world.trace import Trace
from milena.node.links.outgoing import ChannelError
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.protocol.errors import KafkaError
from milena.protocol.records.batch import Codec
from milena.protocol.types import OFFSETS_TOPIC, TopicPartition
from milena.runtime.randomness import Randomness

KEYED: Final = "keyed"
PARTITIONS: Final[list[TopicPartition]] = [(KEYED, 0), (KEYED, 1)]
TOMBSTONES_STAY: Final = 8.0
"""Seconds."""
TOPIC: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "min.insync.replicas": "2",
    "internal.segment.bytes": "1500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(int(TOMBSTONES_STAY * 1000)),
}
SETTINGS: Final[Mapping[str, object]] = {
    "log_cleaner_backoff_ms": 700,
    "log_cleaner_threads": 2,
    "log_cleaner_dedupe_buffer_size": 4 << 20,
}
IN_TIER: Final[Mapping[str, str]] = {TIERED: "true", "local.retention.bytes": "1", "file.delete.delay.ms": "1000"}
"""Beside that, where the topic is tiered."""
IN_TIER_SETTINGS: Final[Mapping[str, object]] = {"remote_log_compaction_enable": True}
SMALL_SEGMENTS: Final = {"internal.segment.bytes": "1500", "min.cleanable.dirty.ratio": "0.01"}
"""For the topic of groups' offsets."""
_KEYS: Final = 12
_PADDING: Final = "."
_CODECS: Final = (Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.GZIP)


class KeyedWorkload:
    """``random`` is its own: what other clients choose is the same without it."""

    def __init__(
        self, client: Cluster, history: list[Event], trace: Trace, random: Randomness, stopping: asyncio.Event
    ) -> None:
        self._client = client
        self._history = history
        self._trace = trace
        self._random = random
        self._stopping = stopping
        self._clock = client.runtime.clock

    def all(self, *, tiered: bool) -> list[Coroutine[object, object, None]]:
        """``tiered``: the topic is in the tier, where its policy may change at any time."""
        switching = [self.switch_policy()] if tiered else []
        return [*map(self.write, PARTITIONS), self.read(), self.compact_offsets(), *switching]

    async def write(self, partition: TopicPartition) -> None:
        """An idempotent writer, one batch at a time."""
        random = self._random
        producer = Producer(
            self._client, acks=-1, idempotent=True, codec=random.choice(_CODECS), request_timeout=2.0, batch_bytes=1000
        )
        number = 0
        noted: list[asyncio.Future[None]] = []
        while not self._stopping.is_set():
            for _ in range(1 + random.below(5)):
                key = f"key-{random.below(_KEYS)}"
                value = None if random.below(5) == 0 else f"{number}"
                number += 1
                begun = self._clock.monotonic()
                padded = None if value is None else (value + _PADDING * (1 + random.below(100))).encode()
                future = await producer.enqueue(partition[0], padded, key=key.encode(), partition=partition[1])
                noted.append(asyncio.ensure_future(self._note(partition, key, value, begun, future)))
            await self._clock.sleep(random.uniform(0, 0.5))
        await producer.close()
        for one in noted:
            await one

    async def _note(
        self, partition: TopicPartition, key: str, value: str | None, begun: float, future: asyncio.Future[Produced]
    ) -> None:
        outcome, offset = RequestOutcome.OK, -1
        try:
            offset = (await future).offset
        except OutcomeUnknown:
            outcome = RequestOutcome.UNKNOWN
        except KafkaError:
            outcome = RequestOutcome.FAILED
        ended = self._clock.monotonic()
        self._history.append(KeyedWrite(partition, key, value, begun, ended, outcome, offset))

    async def read(self) -> None:
        """Reads one partition from its start to its end, then another."""
        while not self._stopping.is_set():
            await self._clock.sleep(self._random.uniform(0, 4))
            partition = self._random.choice(PARTITIONS)
            try:
                async with asyncio.timeout(10):
                    self._history.append(await self._everything(partition))
            except (KafkaError, ChannelError, TimeoutError) as error:
                self._trace.note(f"reader of {KEYED}-{partition[1]}: {type(error).__name__}")

    async def end(self) -> None:
        """Read everything once more, when all faults are over."""
        for partition in PARTITIONS:
            self._history.append(await self._everything(partition, final=True))

    async def _everything(self, partition: TopicPartition, *, final: bool = False) -> FullRead:
        begun = self._clock.monotonic()
        start = (await find_offset(self._client, *partition, EARLIEST)).offset
        upto = (await find_offset(self._client, *partition, LATEST)).offset
        consumer = Consumer(self._client, reset=None)
        consumer.assign({partition: start})
        found: dict[str, tuple[int, str | None]] = {}
        try:
            while (consumer.position(*partition) or 0) < upto:
                for record in await consumer.poll(1.0):
                    assert record.key is not None
                    if record.offset < upto:
                        value = None if record.value is None else record.value.decode().rstrip(_PADDING)
                        found[record.key.decode()] = record.offset, value
        finally:
            await consumer.close()
        last = tuple((key, offset, value) for key, (offset, value) in sorted(found.items()))
        return FullRead(partition, begun, self._clock.monotonic(), upto, last, TOMBSTONES_STAY, final)

    async def switch_policy(self) -> None:
        """The topic is not compacted for a while, now and then."""
        policy = "compact"
        while not self._stopping.is_set():
            await self._clock.sleep(self._random.uniform(0, 20))
            policy = "delete" if policy == "compact" else "compact"
            try:
                await admin.alter_configs(self._client, TOPIC_RESOURCE, KEYED, {"cleanup.policy": policy})
                self._trace.note(f"admin: {KEYED}: cleanup.policy={policy}")
            except (KafkaError, ChannelError) as error:
                self._trace.note(f"admin: {KEYED}: cleanup.policy={policy}: {error}")

    async def compact_offsets(self) -> None:
        """Give the topic of groups' offsets small segments, as soon as it is there."""
        while not self._stopping.is_set():
            await self._clock.sleep(1)
            try:
                await admin.alter_configs(self._client, TOPIC_RESOURCE, OFFSETS_TOPIC, SMALL_SEGMENTS)
                return
            except (KafkaError, ChannelError) as error:
                self._trace.note(f"{OFFSETS_TOPIC} keeps its segments: {error}")
