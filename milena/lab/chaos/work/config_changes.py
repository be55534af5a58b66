"""An administrator that deletes records, switches the tier, copying and compaction off and on, and creates and deletes
tiered topics. At the end the tier and copying are on. It uses Milena's own client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.client.producer import Producer
from milena.lab.chaos.journal import Journal
from milena.lab.chaos.own_clients import changed
from milena.lab.chaos.topics import Topic
from milena.lab.histories.events import AllowedDeletion, RequestOutcome, TopicChange
from milena.node.links.outgoing import ChannelError
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.protocol.errors import KafkaError
from milena.protocol.types import OFFSETS_TOPIC
from milena.runtime.randomness import Randomness

if TYPE_CHECKING:
    from milena.lab.invariants.tiers import Freed

PASSING: Final = "passing-"
"""Prefix of the topics that are created and deleted."""
TIERED: Final = "remote.storage.enable"
LOCAL_BYTES: Final = "local.retention.bytes"
COPY_DISABLE: Final = "remote.log.copy.disable"
DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"
PASSING_CONFIG: Final[Mapping[str, str]] = {
    TIERED: "true",
    "internal.segment.bytes": "1000",
    LOCAL_BYTES: "1",
    "file.delete.delay.ms": "1000",
}
PASSING_RECORDS: Final = 30
SMALL_SEGMENTS: Final = {"internal.segment.bytes": "1500", "min.cleanable.dirty.ratio": "0.01"}
"""For the topic of groups' offsets."""


class ConfigChanges:
    """``topics``: those of the run. ``freed``: gets everything that may be deleted, as the history does."""

    def __init__(
        self,
        client: Cluster,
        topics: Sequence[Topic],
        freed: Freed,
        journal: Journal,
        random: Randomness,
        stopping: asyncio.Event,
    ) -> None:
        self._client = client
        self._tiered = [topic for topic in topics if topic.is_tiered and not topic.keyed]
        self._compacted = [topic for topic in topics if topic.keyed]
        self._freed = freed
        self._journal = journal
        self._random = random
        self._stopping = stopping
        self._clock = client.runtime.clock
        self._switched: dict[str, Topic] = {}

    def all(self, replicas: Sequence[int]) -> list[Coroutine[object, object, None]]:
        """``replicas``: how many a topic may have that is created."""
        found: list[Coroutine[object, object, None]] = []
        if self._tiered:
            found += [self._delete_records(), self._switch(), self._make_tiered(replicas)]
        found += [self._switch_policy(topic) for topic in self._compacted if topic.is_tiered]
        found += [self._shrink_offsets()] if self._compacted else []
        return found

    async def _delete_records(self) -> None:
        """Delete some of the first half of a partition, sometimes everything."""
        places = [place for topic in self._tiered for place in topic.places]
        while not self._stopping.is_set():
            await self._clock.sleep(self._random.uniform(0, 15))
            topic, number = place = self._random.choice(places)
            try:
                start = (await find_offset(self._client, topic, number, EARLIEST)).offset
                end = (await find_offset(self._client, topic, number, LATEST)).offset
                upto = start + self._random.below((end - start) // 2 + 1) if self._random.below(6) else end
                self._freed.before[place] = max(upto, self._freed.before.get(place, 0))
                self._journal.note(AllowedDeletion(place, upto, "DeleteRecords"))
                self._journal.say(f"admin: DeleteRecords of {topic}-{number} before {upto}")
                await admin.delete_records(self._client, {place: upto})
            except (KafkaError, ChannelError) as error:
                self._journal.say(f"admin: DeleteRecords of {topic}-{number}: {error}")

    async def _switch(self) -> None:
        """Disable copying, or the tier with deletion of its segments, and enable it again."""
        while not self._stopping.is_set():
            await self._clock.sleep(self._random.uniform(0, 20))
            topic = self._random.choice(self._tiered)
            if self._stopping.is_set():
                return
            self._switched[topic.name] = topic
            if self._random.below(2):
                await self._change(topic.name, {COPY_DISABLE: "true", LOCAL_BYTES: "-2"})
                await self._clock.sleep(self._random.uniform(0, 8))
                await self._insist(topic.name, {COPY_DISABLE: "false", LOCAL_BYTES: topic.config[LOCAL_BYTES]})
            else:
                self._freed.switched_off[topic.name] = None
                for place in topic.places:
                    self._journal.note(AllowedDeletion(place, None, DELETE_ON_DISABLE))
                await self._change(topic.name, {TIERED: "false", DELETE_ON_DISABLE: "true"})
                await self._clock.sleep(self._random.uniform(0, 8))
                await self._insist(topic.name, {TIERED: "true", DELETE_ON_DISABLE: "false"})

    async def settle(self) -> None:
        """Enable everything, and check that it stays so: requests that timed out may still be in flight."""
        for name, topic in self._switched.items():
            on = {TIERED: "true", DELETE_ON_DISABLE: "false", COPY_DISABLE: "false"}
            on[LOCAL_BYTES] = topic.config[LOCAL_BYTES]
            while not await self._has(name, on):
                await self._insist(name, on)
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
        text = f"admin: {topic}: {', '.join(f'{key}={value}' for key, value in values.items())}"
        try:
            await admin.alter_configs(self._client, TOPIC_RESOURCE, topic, values)
        except (KafkaError, ChannelError) as error:
            self._journal.say(f"{text}: {error}")
            return False
        self._journal.say(text)
        return True

    async def _switch_policy(self, topic: Topic) -> None:
        """The topic is not compacted for a while, now and then."""
        policy = "compact"
        while not self._stopping.is_set():
            await self._clock.sleep(self._random.uniform(0, 20))
            policy = "delete" if policy == "compact" else "compact"
            await self._change(topic.name, {"cleanup.policy": policy})

    async def _shrink_offsets(self) -> None:
        """Give the topic of groups' offsets small segments, as soon as it is there."""
        while not self._stopping.is_set():
            await self._clock.sleep(1)
            if await self._change(OFFSETS_TOPIC, SMALL_SEGMENTS):
                return

    async def _make_tiered(self, replicas: Sequence[int]) -> None:
        """Create topics whose records go to the tier, and delete most of them again."""
        number = 0
        while not self._stopping.is_set():
            await self._clock.sleep(self._random.uniform(0, 10))
            name = f"{PASSING}{number}"
            number += 1
            begun = self._journal.now()
            topic = admin.NewTopic(name, 1, self._random.choice(replicas), configs=PASSING_CONFIG)
            outcome = await changed(name, admin.create_topics(self._client, [topic]))
            self._journal.note(TopicChange(name, True, outcome, PASSING_CONFIG, begun))
            if outcome is RequestOutcome.OK:
                await self._fill(name)
                await self._clock.sleep(self._random.uniform(0, 6))
                if self._random.below(4):
                    begun = self._journal.now()
                    outcome = await changed(name, admin.delete_topics(self._client, [name]))
                    self._journal.note(TopicChange(name, False, outcome, begun=begun))

    async def _fill(self, name: str) -> None:
        producer = Producer(self._client, request_timeout=2.0, batch_bytes=400, delivery_timeout=4.0)
        sent = [await producer.enqueue(name, b"." * 100, partition=0) for _ in range(PASSING_RECORDS)]
        await producer.close()
        await asyncio.gather(*sent, return_exceptions=True)
