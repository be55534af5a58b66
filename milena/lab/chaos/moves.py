"""Reassignments: replicas move to other brokers and back while clients work."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from milena.client.cluster import Cluster, ClusterView
from milena.lab.chaos.health import Health
from milena.lab.chaos.journal import Journal
from milena.node.links.outgoing import ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import KafkaError
from milena.protocol.types import TopicPartition
from milena.runtime.randomness import Randomness

if TYPE_CHECKING:
    from milena.protocol.apis import AlterPartitionReassignmentsResponse

ASKING_MS: Final = 5000
PREFERRED: Final = 0
RETURNING: Final = 60.0
"""Seconds in which replicas must be back."""
WANDERING: Final = 8.0
"""The most seconds between two moves."""
AT_ONCE: Final = 4
"""The most partitions that move at a time."""


class Moves:
    """Moves the replicas of the partitions ``places``."""

    def __init__(
        self,
        client: Cluster,
        health: Health,
        journal: Journal,
        random: Randomness,
        brokers: Sequence[int],
        places: Sequence[TopicPartition],
    ) -> None:
        self._client = client
        self._health = health
        self._journal = journal
        self._random = random
        self._brokers = brokers
        self._places = places

    async def go_and_return(self, seconds: float) -> None:
        """Move some partitions to other replicas (one less than before if there are no other brokers), and back after
        ``seconds``. Raise AssertionError if that takes longer than ``RETURNING``."""
        before = await self._replicas()
        chosen = self._random.shuffled(self._places)[: 1 + self._random.below(AT_ONCE)]
        for place in chosen:
            if place in before:
                count = min(len(before[place]), len(self._brokers) - 1)
                await self._move(place, self._random.shuffled(self._brokers)[:count])
        await self._client.runtime.clock.sleep(seconds)
        end = self._client.runtime.clock.monotonic() + RETURNING
        left = {place: before[place] for place in chosen if place in before}
        while left:
            for place, replicas in left.items():
                await self._move(place, replicas)
            await self._client.runtime.clock.sleep(1.0)
            now = await self._replicas()
            left = {place: had for place, had in left.items() if set(now.get(place, ())) != set(had)}
            if self._client.runtime.clock.monotonic() > end:
                raise AssertionError(f"{sorted(left)} did not get their replicas back in {RETURNING:.0f} seconds")

    async def wander(self, replicas: int, stopping: asyncio.Event) -> None:
        """Move one partition after the other to other brokers, or request its preferred leader, at random. Replicas do
        not return."""
        while not stopping.is_set():
            await self._client.runtime.clock.sleep(self._random.uniform(0, WANDERING))
            place = self._random.choice(self._places)
            if self._random.below(2):
                await self.prefer([place])
            else:
                await self._move(place, self._random.shuffled(self._brokers)[:replicas])

    async def prefer(self, places: Sequence[TopicPartition] | None = None) -> None:
        """Request preferred leader elections, of all partitions by default. Otherwise a few brokers would lead all
        partitions after some faults."""
        topics: dict[str, list[int]] = {}
        for topic, number in self._places if places is None else places:
            topics.setdefault(topic, []).append(number)
        named = [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]
        try:
            await self._client.ask_any(
                ApiKey.ELECT_LEADERS, election_type=PREFERRED, topic_partitions=named, timeout_ms=ASKING_MS
            )
        except (KafkaError, ChannelError) as error:
            self._journal.say(f"preferred leaders: {error}")

    async def _replicas(self) -> Mapping[TopicPartition, tuple[int, ...]]:
        view: ClusterView | None = None
        for view in await self._health.views():
            if view is not None:
                break
        topics = {} if view is None else view.topics
        return {
            (name, number): partition.replicas
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
        }

    async def _move(self, place: TopicPartition, replicas: Sequence[int]) -> None:
        self._journal.say(f"{place[0]}-{place[1]} moves to {list(replicas)}")
        try:
            response: AlterPartitionReassignmentsResponse = await self._client.ask_any(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                timeout_ms=ASKING_MS,
                topics=[{"name": place[0], "partitions": [{"partition_index": place[1], "replicas": list(replicas)}]}],
            )
        except (KafkaError, ChannelError) as error:
            self._journal.say(f"{place[0]}-{place[1]}: {error}")
            return
        for result in response.responses:
            for partition in result.partitions:
                if partition.error_code:
                    self._journal.say(f"{place[0]}-{place[1]}: error {partition.error_code}")
