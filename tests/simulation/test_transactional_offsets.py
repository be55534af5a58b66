"""Offsets of transactions on three brokers: a group coordinator that ends before the marker, and chains of transactions
while brokers are killed."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Final

import pytest

from milena.client.cluster import Cluster
from milena.client.membership import GroupMetadata, find_coordinator
from milena.client.producer import OutcomeUnknown
from milena.client.transactional import TransactionalProducer, TransactionFailed
from milena.lab.cluster import SimulatedCluster, host_of
from milena.node.links.outgoing import ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import OFFSETS_TOPIC
from tests.simulation.steps import seeds, until
from tests.simulation.transactional import (
    BROKERS,
    Scenario,
    committed,
    leader_of,
    on_three_brokers,
    producer,
    release,
    stop_markers,
    until_equal,
)

GROUP: Final = GroupMetadata("g")
LATER = 20.0
"""Seconds in which a broker that does not answer is fenced, and its partitions get other leaders."""
PAUSES: Final = (0.0001, 0.001, 0.01)
"""Seconds between two OffsetFetch requests."""


def play(scenario: Scenario, seed: int = 1) -> None:
    on_three_brokers(
        scenario,
        seed=seed,
        offsets_topic_num_partitions=1,
        offsets_topic_replication_factor=3,
        min_insync_replicas=2,
    )


async def stable_offset(client: Cluster) -> int | ErrorCode:
    """The group's offset of t-0 with RequireStable, or the error."""
    asked = [{"group_id": GROUP.group, "topics": [{"name": "t", "partition_indexes": [0]}]}]
    try:
        host, port = await find_coordinator(client, GROUP.group)
        answer = await client.to(host, port).request(ApiKey.OFFSET_FETCH, 9, groups=asked, require_stable=True)
    except KafkaError as error:
        return error.code
    except (ChannelError, TimeoutError):
        return ErrorCode.NETWORK_EXCEPTION
    (group,) = answer.groups
    if group.error_code:
        return ErrorCode(group.error_code)
    (found,) = group.topics[0].partitions
    return ErrorCode(found.error_code) if found.error_code else int(found.committed_offset)


async def settled_offset(client: Cluster) -> int:
    """The group's offset, once the broker answers and no transaction is open."""
    for attempt in range(100):
        if not isinstance(found := await stable_offset(client), ErrorCode):
            return found
        await client.pause(attempt)
    raise AssertionError(found)


async def step(writing: TransactionalProducer, number: int) -> None:
    """One transaction with a record and the group's next offset."""
    writing.begin()
    await writing.send("t", b"%d" % number, partition=0)
    await writing.send_offsets({("t", 0): number}, GROUP)
    await end(writing)


async def end(writing: TransactionalProducer, *, commit: bool = True) -> None:
    while True:
        with contextlib.suppress(OutcomeUnknown):
            await (writing.commit() if commit else writing.abort())
            return


@pytest.mark.parametrize("newest", [1, 2])
def test_the_next_group_coordinator_gets_the_marker(newest: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing = await producer(client, newest=newest)
        await step(writing, 1)
        assert await settled_offset(client) == 1
        held = stop_markers(cluster, *BROKERS)
        await step(writing, 2)
        assert await stable_offset(client) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        old = leader_of(cluster, OFFSETS_TOPIC)
        await cluster.kill(host_of(old))
        await until(lambda: leader_of(cluster, OFFSETS_TOPIC) not in (old, -1), LATER)
        seen = set[int | ErrorCode]()
        for _ in range(50):
            seen.add(await stable_offset(client))
            await asyncio.sleep(0.1)
        assert ErrorCode.UNSTABLE_OFFSET_COMMIT in seen
        assert all(isinstance(one, ErrorCode) for one in seen)
        release(cluster, {broker: rule for broker, rule in held.items() if broker != old})
        assert await settled_offset(client) == 2
        await cluster.start_broker(old)
        await until_equal(cluster, OFFSETS_TOPIC)

    play(scenario)


class Chain:
    """Transactions one after the other, and an observer of the group's offset."""

    def __init__(self, cluster: SimulatedCluster, client: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._client = client
        self._random = random.Random(seed)
        self.answered = 0
        """The number of the last transaction whose commit was confirmed."""
        self.aborted = 0
        self.finished = False
        self.begun = 0
        """The number of the last transaction that may be committed."""
        self.wrong: list[tuple[int, int, int]] = []
        """Lowest allowed, fetched and highest allowed offset."""
        self.seen = set[int | ErrorCode]()

    async def write(self, count: int) -> None:
        writing = await producer(self._client)
        number = 1
        while number <= count:
            try:
                if self._random.random() < 0.2:
                    await self._abort_one(writing)
                self.begun = number
                await step(writing, number)
            except TransactionFailed as failure:
                writing = await self._after(writing, failure)
                number = await settled_offset(self._client) + 1
                self.answered = max(self.answered, number - 1)
                continue
            self.answered = number
            number += 1
        self.finished = True

    async def _abort_one(self, writing: TransactionalProducer) -> None:
        writing.begin()
        await writing.send("t", b"aborted", partition=0)
        await writing.send_offsets({("t", 0): 1_000_000}, GROUP)
        await end(writing, commit=False)
        self.aborted += 1

    async def _after(self, writing: TransactionalProducer, failure: TransactionFailed) -> TransactionalProducer:
        if not failure.fatal:
            with contextlib.suppress(TransactionFailed):
                await end(writing, commit=False)
                return writing
        return await producer(self._client)

    async def observe(self) -> None:
        while not self.finished:
            before = self.answered
            found = await stable_offset(self._client)
            self.seen.add(found)
            if not isinstance(found, ErrorCode) and not before <= max(found, 0) <= self.begun:
                self.wrong.append((before, found, self.begun))
            await asyncio.sleep(self._random.choice(PAUSES))

    async def kill(self) -> None:
        while not self.finished:
            broker = self._random.choice(BROKERS)
            await self._cluster.kill(host_of(broker))
            await asyncio.sleep(self._random.uniform(0.1, 2))
            await self._cluster.start_broker(broker)
            await asyncio.sleep(self._random.uniform(0.5, 5))


@pytest.mark.parametrize("killed", [False, True], ids=["undisturbed", "killed"])
@pytest.mark.parametrize("seed", seeds(3))
def test_offsets_and_records_are_committed_together(seed: int, killed: bool) -> None:
    """No OffsetFetch with RequireStable returns an offset from before a transaction whose commit was confirmed."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        chain = Chain(cluster, client, seed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(chain.write(60))
            tasks.create_task(chain.observe())
            if killed:
                tasks.create_task(chain.kill())
        assert not chain.wrong
        assert ErrorCode.UNSTABLE_OFFSET_COMMIT in chain.seen
        assert await settled_offset(client) == 60
        assert await committed(client, cluster) == [b"%d" % number for number in range(1, 61)]
        await until_equal(cluster, OFFSETS_TOPIC)

    play(scenario, seed)
