"""An administrator of a simulated cluster: it creates and deletes topics, and moves leaders and replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from milena.client import admin
from milena.client.cluster import Cluster
from milena.lab.histories.events import Event, RequestOutcome, TopicChange
from milena.lab.world.trace import Trace
from milena.node.links.outgoing import ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import TopicPartition
from milena.runtime.randomness import Randomness

if TYPE_CHECKING:
    from milena.protocol.apis import AlterPartitionReassignmentsResponse, ElectLeadersResponse

PREFERRED = 0


class Administrator:
    """Records the outcomes of topic changes; elections and reassignments must not break any invariant."""

    def __init__(
        self, client: Cluster, history: list[Event], trace: Trace, random: Randomness, stopping: asyncio.Event
    ) -> None:
        self._client = client
        self._history = history
        self._trace = trace
        self._random = random
        self._stopping = stopping
        self._clock = client.runtime.clock

    async def change_topics(self, brokers: int) -> None:
        """Create topics, each with its own configuration, and delete some of them again."""
        number = 0
        while not self._stopping.is_set():
            name = f"made-{number}"
            number += 1
            config = {"retention.ms": str(1_000_000 + self._random.below(1_000_000))}
            replicas = 1 + self._random.below(brokers)
            topic = admin.NewTopic(name, 1 + self._random.below(3), replicas, configs=config)
            outcome = await self._create(topic)
            await self._clock.sleep(self._random.uniform(0, 2))
            if outcome is RequestOutcome.OK and self._random.below(2):
                await self._delete(name)
            await self._clock.sleep(self._random.uniform(0, 3))

    async def come_and_go(self, name: str, brokers: int) -> None:
        """Create one topic, delete it, create it again."""
        topic = admin.NewTopic(name, 1, min(2, brokers))
        while not self._stopping.is_set():
            await self._create(topic)
            await self._clock.sleep(self._random.uniform(1, 8))
            await self._delete(name)
            await self._clock.sleep(self._random.uniform(0, 2))

    async def _create(self, topic: admin.NewTopic) -> RequestOutcome:
        begun = self._clock.monotonic()
        outcome = await self._change(topic.name, admin.create_topics(self._client, [topic]))
        self._history.append(TopicChange(topic.name, True, outcome, topic.configs, begun))
        return outcome

    async def _delete(self, name: str) -> None:
        begun = self._clock.monotonic()
        outcome = await self._change(name, admin.delete_topics(self._client, [name]))
        self._history.append(TopicChange(name, False, outcome, begun=begun))

    async def _change(self, name: str, change: Awaitable[admin.Results]) -> RequestOutcome:
        """A rejection for lack of brokers or of a controller may follow a success whose answer was lost."""
        try:
            error = (await change)[name]
        except ChannelError:
            return RequestOutcome.UNKNOWN
        except KafkaError as failure:
            error = failure
        if error is None:
            return RequestOutcome.OK
        self._trace.note(f"admin: {name}: {error.code.name}")
        return RequestOutcome.UNKNOWN

    async def move(self, partitions: Sequence[TopicPartition], brokers: Sequence[int], replicas: int) -> None:
        """Request preferred leaders and other replicas, at random."""
        while not self._stopping.is_set():
            await self._clock.sleep(self._random.uniform(0, 8))
            topic, number = self._random.choice(partitions)
            try:
                if self._random.below(2):
                    await self._elect(topic, number)
                else:
                    await self._reassign(topic, number, self._random.shuffled(brokers)[:replicas])
            except (KafkaError, ChannelError) as error:
                self._trace.note(f"admin: {error}")

    async def _elect(self, topic: str, number: int) -> None:
        response: ElectLeadersResponse = await self._client.ask_any(
            ApiKey.ELECT_LEADERS,
            election_type=PREFERRED,
            topic_partitions=[{"topic": topic, "partitions": [number]}],
            timeout_ms=5000,
        )
        for result in response.replica_election_results:
            for partition in result.partition_result:
                self._trace.note(f"admin: election of {topic}-{number}: {ErrorCode(partition.error_code).name}")

    async def _reassign(self, topic: str, number: int, replicas: Sequence[int]) -> None:
        response: AlterPartitionReassignmentsResponse = await self._client.ask_any(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            timeout_ms=5000,
            topics=[{"name": topic, "partitions": [{"partition_index": number, "replicas": list(replicas)}]}],
        )
        for result in response.responses:
            for partition in result.partitions:
                code = ErrorCode(partition.error_code).name
                self._trace.note(f"admin: reassignment of {topic}-{number} to {list(replicas)}: {code}")
