"""Client workload on a simulated cluster: writers, a reader, a group, an administrator.

Each client works until ``stopping`` is set, and records its operations and their outcomes in the history. Errors caused
by faults are part of the history and never end a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from milena.client import admin
from milena.client.batches import Produced, ProducerIdAndEpoch
from milena.client.cluster import FIRST_PAUSE, Cluster
from milena.client.consumer import ConsumedRecord, Consumer
from milena.client.group_consumer import GroupConsumer
from milena.client.offsets import EARLIEST, find_offset
from milena.client.producer import OutcomeUnknown, Producer
from milena.lab.histories.events import Event, Hole, Poll, RequestOutcome, Send
from milena.lab.histories.group_events import OffsetCommit
from milena.lab.world.trace import Trace
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import Codec
from milena.protocol.types import TopicPartition
from milena.runtime.randomness import Randomness

GROUP: Final = "readers"
POLL_SECONDS: Final = 0.5
CODECS: Final = (Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP)
PADDING: Final = b" "
"""The separator between a record's name and its padding."""


class Workload:
    """The state shared by all clients. ``stopping`` ends them; ``ends`` then has the offsets that the reader must
    reach.

    ``hole_at``: the range that is lost for good at an offset of a partition, if there is one: a client whose read is
    rejected there may skip it.
    """

    def __init__(
        self,
        client: Cluster,
        history: list[Event],
        trace: Trace,
        random: Randomness,
        hole_at: Callable[[TopicPartition, int], tuple[int, int] | None],
    ) -> None:
        self.stopping = asyncio.Event()
        self.ends: Mapping[TopicPartition, int] | None = None
        self._client = client
        self._history = history
        self._trace = trace
        self._random = random
        self._hole_at = hole_at
        self._clock = client.runtime.clock
        self._refused: dict[str, ErrorCode] = {}
        self._sessions = 0

    async def write(self, topic: str, partition: int, acks: int, pause: float) -> None:
        """A writer for one partition, idempotent with acks=all: batches of random size at random times."""
        producer = Producer(
            self._client,
            acks=acks,
            idempotent=acks == -1,
            codec=self._random.choice(CODECS),
            request_timeout=2.0,
            batch_bytes=2000,
            delivery_timeout=self._random.choice((4.0, 60.0)),
        )
        name = f"{topic}-{partition}{'' if acks == -1 else '-weak'}"
        number = 0
        noted: list[asyncio.Future[None]] = []
        while not self.stopping.is_set():
            for _ in range(1 + self._random.below(4)):
                value = f"{name}:{number}"
                number += 1
                data = value.encode() + PADDING + b"." * self._random.below(200)
                begun = self._clock.monotonic()
                future = await producer.enqueue(topic, data, partition=partition)
                noting = self._note_send((topic, partition), name, value, acks, begun, future)
                noted.append(asyncio.ensure_future(noting))
            await self._clock.sleep(self._random.uniform(0, pause))
        await producer.close()
        for one in noted:
            await one

    async def _note_send(
        self,
        partition: TopicPartition,
        lane: str,
        value: str,
        acks: int,
        begun: float,
        future: asyncio.Future[Produced],
    ) -> None:
        outcome, offset = RequestOutcome.OK, -1
        identity: ProducerIdAndEpoch | None = None
        try:
            produced = await future
            offset, identity = produced.offset, produced.identity
        except OutcomeUnknown as error:
            outcome, identity = RequestOutcome.UNKNOWN, error.identity
        except KafkaError as error:
            outcome = RequestOutcome.FAILED
            self._note_refusal(lane, value, error)
        else:
            self._refused.pop(lane, None)
        ended = self._clock.monotonic()
        once = acks == -1
        if once:
            lane = "" if identity is None else f"{lane}, id {identity.producer_id}-{identity.epoch}"
        self._history.append(Send(partition, value, begun, ended, outcome, offset, acks, lane, once))

    def _note_refusal(self, lane: str, value: str, error: KafkaError) -> None:
        """Once for several consecutive records."""
        if self._refused.get(lane) is not error.code:
            self._refused[lane] = error.code
            self._trace.note(f"producer: refused from {value} on: {error.code.name}")

    async def read(self, partitions: list[TopicPartition]) -> None:
        """A reader of everything from the start until it has reached the ends."""
        consumer = Consumer(self._client)
        consumer.assign(dict.fromkeys(partitions))
        reached = dict.fromkeys(partitions, 0)
        sessions = dict.fromkeys(partitions, "reader")
        while self.ends is None or any(reached[one] < end for one, end in self.ends.items()):
            try:
                records = await consumer.poll(POLL_SECONDS)
            except KafkaError as error:
                self._trace.note(f"reader: {error}")
                for topic, number in partitions if self.ends is not None else ():
                    behind = self._pass_by(consumer, topic, number)
                    if behind is not None:
                        reached[topic, number] = behind
                        sessions[topic, number] = f"reader from {behind}"
                continue
            self._note_polls(lambda partition: sessions[partition], records)
            for record in records:
                reached[record.topic, record.partition] = record.offset + 1
        now = self._clock.monotonic()
        self._history += [Poll(partition, sessions[partition], now, ()) for partition in self.ends]
        await consumer.close()

    def _pass_by(self, consumer: Consumer | GroupConsumer, topic: str, number: int) -> int | None:
        """The offset at which a consumer continues whose position is in a hole; None if it is not."""
        at = consumer.position(topic, number)
        hole = None if at is None else self._hole_at((topic, number), at)
        if hole is None:
            return None
        self._trace.note(f"reader: {topic}-{number}: offsets {hole[0]} to {hole[1]} are lost")
        self._history.append(Hole((topic, number), *hole))
        consumer.seek(topic, number, hole[1] + 1)
        return hole[1] + 1

    async def read_again(self, partitions: Sequence[TopicPartition], random: Randomness) -> None:
        """A reader that starts at the first record of one partition, reads for a while, and continues with another."""
        number = 0
        while not self.stopping.is_set():
            await self._clock.sleep(random.uniform(0, 6))
            topic, partition = random.choice(partitions)
            consumer = Consumer(self._client, reset=None)
            until = self._clock.monotonic() + random.uniform(1, 4)
            number += 1
            try:
                start = await find_offset(self._client, topic, partition, EARLIEST)
                consumer.assign({(topic, partition): start.offset})
                while self._clock.monotonic() < until:
                    session = f"reader {number} from the start"
                    self._note_polls(lambda _, session=session: session, await consumer.poll(POLL_SECONDS))  # type: ignore[misc]
            except (KafkaError, ChannelError) as error:
                self._trace.note(f"reader from the start of {topic}-{partition}: {error}")
            await consumer.close()

    def _note_polls(self, session: Callable[[TopicPartition], str], records: list[ConsumedRecord]) -> None:
        found: dict[TopicPartition, list[tuple[int, str]]] = {}
        for record in records:
            found.setdefault((record.topic, record.partition), []).append((record.offset, name_of(record)))
        now = self._clock.monotonic()
        self._history += [Poll(partition, session(partition), now, tuple(pairs)) for partition, pairs in found.items()]

    async def share(self, topic: str) -> None:
        """A member of the group, which commits what it has read, and is replaced from time to time."""
        while not self.stopping.is_set():
            member = self.member(topic)
            leaves_at = self._clock.monotonic() + self._random.uniform(3, 15)
            while not self.stopping.is_set() and self._clock.monotonic() < leaves_at:
                await self.poll_and_commit(member)
            await member.close()

    def member(self, topic: str) -> GroupConsumer:
        """A new member of the group, without auto-commit."""

        def assigned(_: list[TopicPartition]) -> None:
            self._sessions += 1

        return GroupConsumer(
            self._client,
            GROUP,
            [topic],
            session_timeout_ms=6000,
            rebalance_timeout_ms=6000,
            auto_commit=False,
            assigned=assigned,
        )

    async def poll_and_commit(self, member: GroupConsumer) -> None:
        try:
            records = await member.poll(POLL_SECONDS)
        except (KafkaError, ChannelError) as error:
            self._trace.note(f"group: {error}")
            return
        session = f"{member.member_id}, assignment {self._sessions}"
        self._note_polls(lambda _: session, records)
        await self._commit(member, {(record.topic, record.partition): record.offset + 1 for record in records})

    async def _commit(self, member: GroupConsumer, offsets: Mapping[TopicPartition, int]) -> None:
        """The client retries if possible: even after an error the commit may take effect."""
        if not offsets:
            return
        begun, outcome = self._clock.monotonic(), RequestOutcome.OK
        try:
            await member.commit(offsets)
        except (KafkaError, ChannelError) as error:
            self._trace.note(f"group: {error}")
            outcome = RequestOutcome.UNKNOWN
        ended = self._clock.monotonic()
        # as which member the last try was made is not known here
        head = (GROUP, "", begun, ended, outcome, member.member_id, -1)
        retried = ended - begun >= FIRST_PAUSE / 2
        self._history += [
            OffsetCommit(*head, partition=partition, offset=offset, retried=retried)
            for partition, offset in offsets.items()
        ]

    async def committed(self) -> dict[TopicPartition, int]:
        """The group's committed offsets; empty if they are not available now."""
        try:
            return await admin.group_offsets(self._client, GROUP)
        except ChannelError as error:
            self._trace.note(f"group: {error}")
            return {}

    async def commit_behind_holes(self, member: GroupConsumer) -> None:
        """Let a member whose read is rejected because of a hole continue after it."""
        for topic, number in member.assignment:
            behind = self._pass_by(member, topic, number)
            if behind is None:
                continue
            self._sessions += 1
            await self._commit(member, {(topic, number): behind})


def name_of(record: ConsumedRecord) -> str:
    """The record's value in the history."""
    assert record.value is not None
    return record.value.partition(PADDING)[0].decode()
