"""A lab rule that fails some partitions of a Fetch: the others are served, in every version and in fetch sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests.fetch_request import FetchPartition, FetchRequest, encode_fetch_request
from milena.protocol.requests.fetch_response import FetchResponse, decode_fetch_response
from milena.protocol.schemas.registry import REGISTRY
from tests.simulation.steps import QUICK, create, partition_image, until, write

RANGE = REGISTRY[ApiKey.FETCH].ours
assert RANGE is not None
VERSIONS = range(RANGE.min, RANGE.max + 1)
SESSIONS_SINCE, IDS_SINCE = 7, 13
REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER
Outcomes = dict[int, tuple[ErrorCode, bool]]
"""Partition to its error, and whether it had records."""


class Fetching:
    """A consumer of topic ``t`` at broker 1, and the lab commands of that broker."""

    def __init__(self, cluster: SimulatedCluster, client: Cluster, version: int) -> None:
        self.cluster, self.client, self.version = cluster, client, version
        self.lab_commands = cluster.brokers[1].lab_commands
        self.session = (0, -1)

    async def fail(self, **arguments: Any) -> int:
        rule: int = (await self.lab_commands.call("fail", api="FETCH", error=REFUSED.name, **arguments))["rule"]
        return rule

    async def begin(self, offsets: Mapping[int, int]) -> Outcomes:
        """Send the first Fetch. It begins a fetch session if the version has sessions."""
        if self.version >= SESSIONS_SINCE:
            self.session = (0, 0)
        return await self.fetch(offsets)

    async def fetch(self, offsets: Mapping[int, int]) -> Outcomes:
        """Send the next Fetch with these offsets by partition, in the session if there is one."""
        answer = await self.ask(offsets)
        assert not answer.error_code, ErrorCode(answer.error_code)
        if self.session[1] >= 0:
            self.session = (answer.session_id, self.session[1] + 1)
        return {
            one.partition: (ErrorCode(one.error_code), bool(one.records))
            for _, _, partitions in answer.topics
            for one in partitions
        }

    async def ask(self, offsets: Mapping[int, int]) -> FetchResponse:
        by_id = self.version >= IDS_SINCE
        topic_id = self.cluster.brokers[1].image.topics["t"].id
        partitions = [FetchPartition(index, offset, 1 << 20) for index, offset in offsets.items()]
        topics = [(None if by_id else "t", topic_id if by_id else None, partitions)] if partitions else []
        request = FetchRequest(100, 1, 1 << 20, topics, session_id=self.session[0], session_epoch=self.session[1])
        body = [encode_fetch_request(self.version, request)]
        channel = self.client.to(host_of(1), 9092)
        await channel.connect()
        return await channel.request_raw(
            ApiKey.FETCH, self.version, body, lambda found: decode_fetch_response(self.version, found)
        )


def with_two_partitions(scenario: Callable[[Fetching], Awaitable[None]], version: int) -> None:
    """Run ``scenario`` with one broker and a topic of two partitions with one record each."""

    async def run(world: World) -> None:
        cluster = await start_cluster(world)
        async with cluster.client() as client:
            await create(client, partitions=2)
            for partition in (0, 1):
                await write(client, 1, partition=partition)
            await scenario(Fetching(cluster, client, version))

    simulate(run, seed=1)


@pytest.mark.parametrize("side", ["request", "response"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_partition_that_the_rule_does_not_name_is_served(version: int, side: str) -> None:
    async def scenario(t: Fetching) -> None:
        rule = await t.fail(topic="t", partition=0, side=side)
        assert await t.fetch({0: 0, 1: 0}) == {0: (REFUSED, False), 1: (ErrorCode.NONE, True)}
        assert await t.fetch({0: 0}) == {0: (REFUSED, False)}
        assert await t.fetch({1: 0}) == {1: (ErrorCode.NONE, True)}
        assert (await t.lab_commands.call("release", rule=rule))["hits"] == 2
        assert await t.fetch({0: 0, 1: 0}) == {0: (ErrorCode.NONE, True), 1: (ErrorCode.NONE, True)}

    with_two_partitions(scenario, version)


@pytest.mark.parametrize("side", ["request", "response"])
@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= SESSIONS_SINCE])
def test_a_session_keeps_a_refused_partition_and_returns_it_later(version: int, side: str) -> None:
    async def scenario(t: Fetching) -> None:
        assert await t.begin({0: 0, 1: 0}) == {0: (ErrorCode.NONE, True), 1: (ErrorCode.NONE, True)}
        assert await t.fetch({0: 1, 1: 1}) == {}
        rule = await t.fail(topic="t", partition=0, side=side)
        # The request does not name it, because it is in the session.
        assert await t.fetch({}) == {0: (REFUSED, False)}
        await write(t.client, 1, partition=0, first=1)
        await write(t.client, 1, partition=1, first=1)
        assert await t.fetch({}) == {0: (REFUSED, False), 1: (ErrorCode.NONE, True)}
        await t.lab_commands.call("release", rule=rule)
        assert await t.fetch({1: 2}) == {0: (ErrorCode.NONE, True)}

    with_two_partitions(scenario, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_can_begin_with_a_refused_partition(version: int) -> None:
    async def scenario(t: Fetching) -> None:
        await t.fail(topic="t", partition=0, count=1)
        assert await t.begin({0: 0, 1: 0}) == {0: (REFUSED, False), 1: (ErrorCode.NONE, True)}
        later = {1: 1} if version >= SESSIONS_SINCE else {0: 0, 1: 1}
        assert (await t.fetch(later))[0] == (ErrorCode.NONE, True)

    with_two_partitions(scenario, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rule_without_a_topic_refuses_all_partitions(version: int) -> None:
    async def scenario(t: Fetching) -> None:
        await t.fail()
        if version >= SESSIONS_SINCE:
            answer = await t.ask({0: 0, 1: 0})
            assert (answer.error_code, list(answer.topics)) == (REFUSED, [])
        else:
            assert await t.fetch({0: 0, 1: 0}) == {0: (REFUSED, False), 1: (REFUSED, False)}

    with_two_partitions(scenario, version)


def test_a_follower_leaves_the_isr_of_the_refused_partition_only() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 2, QUICK | {"replica_lag_time_max_ms": 2000})
        async with cluster.client() as client:
            await create(client, partitions=3, replicas=2)
            for partition in (0, 2):
                await write(client, 1, partition=partition)
            leader = int(partition_image(cluster).leader)
            assert partition_image(cluster, partition=2).leader == leader
            await cluster.brokers[leader].lab_commands.call(
                "fail", api="FETCH", topic="t", partition=0, error=REFUSED.name
            )
            writing = asyncio.ensure_future(write(client, 1, partition=0, first=1))
            await until(lambda: list(partition_image(cluster).isr) == [leader])
            await writing
            assert len(partition_image(cluster, partition=2).isr) == 2

    simulate(scenario, seed=1)
