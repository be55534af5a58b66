"""The writers of a run: each writes to one topic with one library, every partition at its own pace."""

from __future__ import annotations

import asyncio
from typing import Final

from milena.lab.chaos.clients import IN_ORDER, ChaosProducer, Clients, Sent
from milena.lab.chaos.journal import Journal
from milena.lab.chaos.topics import Topic
from milena.lab.histories.events import ACKS_ALL, Invoke, RequestOutcome, Send
from milena.lab.histories.keyed import KeyedWrite
from milena.protocol.types import TopicPartition
from milena.runtime.clock import Clock
from milena.runtime.randomness import Randomness

MOST_UNDER_WAY: Final = 200
"""The most records of one partition without an outcome; then its writer waits."""
TOMBSTONES: Final = 6
"""One record of so many is a tombstone."""
PADDING: Final = " "
"""Between a record's name and what makes it longer."""
LONGEST_PADDING: Final = 200


class Writer:
    """``pace``: seconds between two bursts of records of a partition, on average; ``burst``: the most records of one.
    ``weak``: with acks=1, whatever the topic says."""

    def __init__(
        self,
        clients: Clients,
        topic: Topic,
        journal: Journal,
        clock: Clock,
        random: Randomness,
        pace: float,
        *,
        burst: int = 1,
        weak: bool = False,
    ) -> None:
        self._clients = clients
        self._topic = topic
        self._journal = journal
        self._clock = clock
        self._random = random
        self._pace = pace
        self._burst = burst
        self._acks = 1 if weak else topic.acks
        self._name = f"{clients.name}/{topic.name}{'-weak' if weak else ''}"
        self._once = self._acks == ACKS_ALL
        self._errors: dict[TopicPartition, str] = {}
        """The last error of each partition; "" after a success."""
        self._giving_up = 0
        """How often the producer has given up a record. It may then continue with another producer id."""

    async def write(self, stopping: asyncio.Event) -> None:
        producer = await self._clients.producer(acks=self._acks, idempotent=self._once)
        async with asyncio.TaskGroup() as partitions:
            for place in self._topic.places:
                partitions.create_task(self._write_to(producer, place, stopping))
        await producer.close()

    async def _write_to(self, producer: ChaosProducer, place: TopicPartition, stopping: asyncio.Event) -> None:
        free = asyncio.Semaphore(MOST_UNDER_WAY)
        number = 0
        async with asyncio.TaskGroup() as sends:
            while not stopping.is_set():
                await self._clock.sleep(self._random.uniform(0, 2 * self._pace))
                send = self._send_keyed if self._topic.keyed else self._send
                for _ in range(1 + self._random.below(self._burst) if self._burst > 1 else 1):
                    await free.acquire()
                    sends.create_task(send(producer, place, number)).add_done_callback(lambda _: free.release())
                    number += 1

    async def _send(self, producer: ChaosProducer, place: TopicPartition, number: int) -> None:
        value = f"{self._name}:{number}"
        begun, before = self._journal.now(), self._giving_up
        self._journal.note(Invoke("send", begun, place, value, acks=self._acks))
        sent = await producer.send(place, None, self._padded(value))
        self._say_error(place, value, sent)
        lane = self._lane(place, sent, before)
        if not self._once and IN_ORDER not in self._clients.can:
            # without numbers a library may try a record again behind its successors: no order is promised
            lane = f"{self._name}-{place[1]}, {number}"
        ended = self._journal.now()
        self._journal.note(Send(place, value, begun, ended, sent.outcome, sent.offset, self._acks, lane, self._once))

    def _lane(self, place: TopicPartition, sent: Sent, before: int) -> str:
        """A lane ends with a record that was given up. Records that were under way meanwhile may belong to either, so
        they have none; but the library may tell."""
        lane = "" if self._giving_up != before else f"{self._name}-{place[1]}, {before}"
        if sent.outcome is not RequestOutcome.OK:
            self._giving_up += 1
        if sent.identity and self._once:
            return f"{self._name}-{place[1]}, {sent.identity}"
        return lane

    def _say_error(self, place: TopicPartition, name: str, sent: Sent) -> None:
        """Once for several consecutive records."""
        error = "" if sent.outcome is RequestOutcome.OK else f"{sent.outcome.value}: {sent.error}"
        if error and error != self._errors.get(place):
            self._journal.say(f"{self._name} to {place[0]}-{place[1]}, from {name} on: {error}")
        self._errors[place] = error

    async def _send_keyed(self, producer: ChaosProducer, place: TopicPartition, number: int) -> None:
        key = f"key-{self._random.below(self._topic.keys)}"
        value = None if self._random.below(TOMBSTONES) == 0 else f"{self._name}:{number}"
        begun = self._journal.now()
        self._journal.note(Invoke("keyed", begun, place, value, key))
        sent = await producer.send(place, key, None if value is None else self._padded(value))
        self._say_error(place, f"{number}", sent)
        ended = self._journal.now()
        self._journal.note(KeyedWrite(place, key, value, begun, ended, sent.outcome, sent.offset, self._once))

    def _padded(self, value: str) -> str:
        return value + PADDING + "." * self._random.below(LONGEST_PADDING)


def name_of(value: str) -> str:
    """The value in the history of one that was read."""
    return value.partition(PADDING)[0]
