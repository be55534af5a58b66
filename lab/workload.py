"""Clients at work on a simulated cluster: writers, a reader, a group, somebody who makes and deletes topics.

Each works until it is told to stop, and notes in the history what it did and what became of it. Errors that a fault
brings are part of the history, never the end of a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final

from lab.history import Commit, History, Outcome, Seen, TopicChange, Write
from lab.trace import Trace
from node.client import admin
from node.client.batches import Produced
from node.client.cluster import Cluster
from node.client.consumer import Consumer, TopicPartition
from node.client.group_consumer import GroupConsumer
from node.client.producer import OutcomeUnknown, Producer
from node.outgoing import ChannelError
from protocol.batch import Codec
from protocol.errors import ErrorCode, KafkaError
from runtime.randomness import Randomness

GROUP: Final = "readers"
POLL_SECONDS: Final = 0.5
CODECS: Final = (Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP)


class Workload:
    """What all clients share. ``stopping`` is set to end them."""

    def __init__(self, client: Cluster, history: History, trace: Trace, random: Randomness) -> None:
        self.stopping = asyncio.Event()
        self._client = client
        self._history = history
        self._trace = trace
        self._random = random
        self._clock = client.runtime.clock
        self._refused: dict[TopicPartition, ErrorCode] = {}

    async def write(self, topic: str, partition: int, pause: float) -> None:
        """One idempotent writer for one partition: batches of random size at random times."""
        producer = Producer(
            self._client,
            codec=self._random.choice(CODECS),
            request_timeout=2.0,
            batch_bytes=2000,
            delivery_timeout=self._random.choice((4.0, 60.0)),
        )
        number = 0
        noted: list[asyncio.Future[None]] = []
        while not self.stopping.is_set():
            for _ in range(1 + self._random.below(4)):
                value = b"%s-%d:%d" % (topic.encode(), partition, number) + b"." * self._random.below(200)
                future = await producer.enqueue(topic, value, partition=partition)
                noting = self._note_write((topic, partition), number, value, self._clock.monotonic(), future)
                noted.append(asyncio.ensure_future(noting))
                number += 1
            await self._clock.sleep(self._random.uniform(0, pause))
        await producer.close()
        for one in noted:
            await one

    async def _note_write(
        self, partition: TopicPartition, number: int, value: bytes, sent_at: float, future: asyncio.Future[Produced]
    ) -> None:
        outcome, offset = Outcome.OK, -1
        try:
            offset = (await future).offset
        except OutcomeUnknown:
            outcome = Outcome.UNKNOWN
        except KafkaError as error:
            outcome = Outcome.FAILED
            self._note_refusal(partition, number, error)
        else:
            self._refused.pop(partition, None)
        ended_at = self._clock.monotonic()
        self._history.writes.append(Write(partition, number, value, sent_at, ended_at, outcome, offset))

    def _note_refusal(self, partition: TopicPartition, number: int, error: KafkaError) -> None:
        """Once for a row of records."""
        if self._refused.get(partition) is not error.code:
            self._refused[partition] = error.code
            self._trace.note(f"client: {partition[0]}-{partition[1]} from record {number} on: {error.code.name}")

    async def read(self, partitions: Sequence[TopicPartition]) -> None:
        """A reader of everything, as it comes."""
        consumer = Consumer(self._client)
        consumer.assign(dict.fromkeys(partitions))
        while not self.stopping.is_set():
            for record in await consumer.poll(POLL_SECONDS):
                assert record.value is not None
                self._history.seen.append(Seen((record.topic, record.partition), record.offset, record.value))
        await consumer.close()

    async def share(self, topic: str) -> None:
        """A member of the group, which commits what it has read, and comes anew from time to time."""
        while not self.stopping.is_set():
            member = self.member(topic)
            leaves_at = self._clock.monotonic() + self._random.uniform(3, 15)
            while not self.stopping.is_set() and self._clock.monotonic() < leaves_at:
                await self._poll_and_commit(member)
            await member.close()

    def member(self, topic: str) -> GroupConsumer:
        """A new member of the group, which does not commit by itself."""
        return GroupConsumer(
            self._client, GROUP, [topic], session_timeout_ms=6000, rebalance_timeout_ms=6000, auto_commit=False
        )

    async def _poll_and_commit(self, member: GroupConsumer) -> None:
        try:
            records = await member.poll(POLL_SECONDS)
            offsets = {(record.topic, record.partition): record.offset + 1 for record in records}
            if offsets:
                await member.commit(offsets)
        except (KafkaError, ChannelError) as error:
            self._trace.note(f"group: {error}")
            return
        now = self._clock.monotonic()
        self._history.commits += [Commit(partition, offset, now) for partition, offset in offsets.items()]

    async def administer(self) -> None:
        """Make topics, each with a configuration of its own, and delete some of them again."""
        number = 0
        while not self.stopping.is_set():
            name = f"made-{number}"
            number += 1
            config = {"retention.ms": str(1_000_000 + self._random.below(1_000_000))}
            topic = admin.NewTopic(name, 1 + self._random.below(3), 1 + self._random.below(2), configs=config)
            outcome = await self._change(name, admin.create_topics(self._client, [topic]))
            self._history.topics.append(TopicChange(name, True, outcome, config))
            await self._clock.sleep(self._random.uniform(0, 1))
            if outcome is Outcome.OK and self._random.below(2):
                outcome = await self._change(name, admin.delete_topics(self._client, [name]))
                self._history.topics.append(TopicChange(name, False, outcome))
            await self._clock.sleep(self._random.uniform(0, 1))

    async def _change(self, name: str, change: Awaitable[admin.Results]) -> Outcome:
        """A refusal for lack of brokers or of a controller may hide a success whose answer was lost."""
        try:
            error = (await change)[name]
        except ChannelError:
            return Outcome.UNKNOWN
        except KafkaError as failure:
            error = failure
        if error is None:
            return Outcome.OK
        self._trace.note(f"admin: {name}: {error.code.name}")
        return Outcome.UNKNOWN
