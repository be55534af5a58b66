"""An administrator of tiered topics: it creates and deletes topics, deletes records, and disables and enables copying
and the tier. At the end everything is enabled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.client.producer import Producer
from milena.lab.histories.events import AllowedDeletion, Event, RequestOutcome, TopicChange
from milena.lab.invariants.tiers import Freed
from milena.lab.world.tiering import TIERED
from milena.lab.world.trace import Trace
from milena.node.links.outgoing import ChannelError
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.protocol.errors import KafkaError
from milena.protocol.types import TopicPartition
from milena.runtime.randomness import Randomness

PASSING: Final = "passing-"
"""Prefix of the topics that are created and deleted."""
PASSING_CONFIG: Final[Mapping[str, str]] = {
    TIERED: "true",
    "internal.segment.bytes": "1000",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "1000",
}
PASSING_RECORDS: Final = 30
LOCAL_BYTES: Final = "local.retention.bytes"
COPY_DISABLE: Final = "remote.log.copy.disable"
DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"


class TierAdministrator:
    """``topics``: the tiered topics with their configurations. ``partitions``: their partitions. ``freed``: gets
    everything that may be deleted."""

    def __init__(
        self,
        client: Cluster,
        topics: Mapping[str, Mapping[str, str]],
        partitions: Sequence[TopicPartition],
        freed: Freed,
        history: list[Event],
        trace: Trace,
        random: Randomness,
        stopping: asyncio.Event,
    ) -> None:
        self._client = client
        self._topics = topics
        self._partitions = partitions
        self._freed = freed
        self._history = history
        self._trace = trace
        self._random = random
        self._stopping = stopping
        self._clock = client.runtime.clock
        self._switched: list[str] = []

    async def delete_records(self) -> None:
        """Delete some of the first half of a partition, sometimes everything."""
        while not self._stopping.is_set():
            await self._clock.sleep(self._random.uniform(0, 15))
            topic, number = self._random.choice(self._partitions)
            try:
                start = (await find_offset(self._client, topic, number, EARLIEST)).offset
                end = (await find_offset(self._client, topic, number, LATEST)).offset
                upto = start + self._random.below((end - start) // 2 + 1) if self._random.below(6) else end
                before = self._freed.before
                before[topic, number] = max(upto, before.get((topic, number), 0))
                self._history.append(AllowedDeletion((topic, number), upto, "DeleteRecords"))
                self._trace.note(f"admin: DeleteRecords of {topic}-{number} before {upto}")
                await admin.delete_records(self._client, {(topic, number): upto})
            except (KafkaError, ChannelError) as error:
                self._trace.note(f"admin: DeleteRecords of {topic}-{number}: {error}")

    async def switch(self) -> None:
        """Disable copying, or the tier with deletion of its segments, and enable it again."""
        while not self._stopping.is_set():
            await self._clock.sleep(self._random.uniform(0, 20))
            topic = self._random.choice(list(self._topics))
            if self._stopping.is_set():
                return
            self._switched.append(topic)
            if self._random.below(2):
                await self._change(topic, {COPY_DISABLE: "true", LOCAL_BYTES: "-2"})
                await self._clock.sleep(self._random.uniform(0, 8))
                await self._insist(topic, {COPY_DISABLE: "false", LOCAL_BYTES: self._topics[topic][LOCAL_BYTES]})
            else:
                self._freed.switched_off[topic] = None
                self._history += [
                    AllowedDeletion(partition, None, DELETE_ON_DISABLE)
                    for partition in self._partitions
                    if partition[0] == topic
                ]
                await self._change(topic, {TIERED: "false", DELETE_ON_DISABLE: "true"})
                await self._clock.sleep(self._random.uniform(0, 8))
                await self._insist(topic, {TIERED: "true", DELETE_ON_DISABLE: "false"})

    async def settle(self) -> None:
        """Enable everything, and check that it stays so: requests that timed out may still be in flight."""
        for topic in dict.fromkeys(self._switched):
            on = {TIERED: "true", DELETE_ON_DISABLE: "false", COPY_DISABLE: "false"}
            on[LOCAL_BYTES] = self._topics[topic][LOCAL_BYTES]
            while not await self._has(topic, on):
                await self._insist(topic, on)
                await self._clock.sleep(2)

    async def _has(self, topic: str, values: Mapping[str, str]) -> bool:
        try:
            entries = await admin.describe_configs(self._client, TOPIC_RESOURCE, topic)
        except (KafkaError, ChannelError):
            return False
        found = {entry.name: entry.value for entry in entries}
        return all(found.get(key) == value for key, value in values.items())

    async def _insist(self, topic: str, values: Mapping[str, str]) -> None:
        while not await self._change(topic, values):
            await self._clock.sleep(1)

    async def _change(self, topic: str, values: Mapping[str, str]) -> bool:
        said = ", ".join(f"{key}={value}" for key, value in values.items())
        try:
            await admin.alter_configs(self._client, TOPIC_RESOURCE, topic, values)
        except (KafkaError, ChannelError) as error:
            self._trace.note(f"admin: {topic}: {said}: {error}")
            return False
        self._trace.note(f"admin: {topic}: {said}")
        return True

    async def change_topics(self, replicas: int) -> None:
        """Create topics whose records go to the tier, and delete most of them again."""
        number = 0
        while not self._stopping.is_set():
            await self._clock.sleep(self._random.uniform(0, 10))
            name = f"{PASSING}{number}"
            number += 1
            topic = admin.NewTopic(name, 1, 1 + self._random.below(replicas), configs=PASSING_CONFIG)
            outcome = await self._ask(name, creates=topic)
            self._history.append(TopicChange(name, True, outcome, PASSING_CONFIG))
            if outcome is RequestOutcome.OK:
                await self._fill(name)
                await self._clock.sleep(self._random.uniform(0, 6))
                if self._random.below(4):
                    self._history.append(TopicChange(name, False, await self._ask(name)))

    async def _ask(self, name: str, *, creates: admin.NewTopic | None = None) -> RequestOutcome:
        """Create a topic, or delete it."""
        try:
            if creates is not None:
                error = (await admin.create_topics(self._client, [creates]))[name]
            else:
                error = (await admin.delete_topics(self._client, [name]))[name]
        except ChannelError:
            return RequestOutcome.UNKNOWN
        except KafkaError as failure:
            error = failure
        what = "deleted" if creates is None else "created"
        self._trace.note(f"admin: {name} is {what}" if error is None else f"admin: {name}: {error.code.name}")
        return RequestOutcome.OK if error is None else RequestOutcome.UNKNOWN

    async def _fill(self, name: str) -> None:
        producer = Producer(self._client, request_timeout=2.0, batch_bytes=400, delivery_timeout=4.0)
        sent = [await producer.enqueue(name, b"." * 100, partition=0) for _ in range(PASSING_RECORDS)]
        await producer.close()
        await asyncio.gather(*sent, return_exceptions=True)
