"""Limits of reads from the tier: how much one request reads, how long it waits, and its error when the wait ends early
(docs/kafka-semantics.md: Remote fetches, Special timestamps)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from milena.client import admin, replicas
from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of
from milena.node.metadata.image import BROKER_RESOURCE
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.simulation.counted_reads import EXPIRED, HANGS, counted, filled, filled_twice, timed
from tests.simulation.fetches import fetch
from tests.simulation.steps import partition_image, until
from tests.simulation.tiered_topics import bases, replica, with_tier

EXPIRED_SEARCHES = "kafka_server_delayedremotelistoffsetsmetrics_expirespersec_total"
MAX_WAIT = "remote.fetch.max.wait.ms"


async def read(client: Cluster, *topics: str, max_bytes: int, partition_bytes: int = 1 << 20) -> dict[str, list[int]]:
    """Fetch the topics from offset 0, in this order."""
    answer = await fetch(
        client, {(topic, 0): 0 for topic in topics}, max_bytes=max_bytes, partition_bytes=partition_bytes
    )
    assert not any(one.error for one in answer.partitions.values())
    return {topic: one.values for (topic, _), one in answer.partitions.items()}


async def search(client: Cluster, broker: int, timeout_ms: int) -> ErrorCode:
    """Search the first offset by timestamp; return the error code."""
    channel = client.to(host_of(broker), 9092)
    partition: dict[str, Any] = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": 1}
    topics = [{"name": "t", "partitions": [partition]}]
    response = await channel.request(
        ApiKey.LIST_OFFSETS, replica_id=-1, isolation_level=0, topics=topics, timeout_ms=timeout_ms
    )
    return ErrorCode(response.topics[0].partitions[0].error_code)


def test_a_partition_in_the_tier_reserves_its_maximum_size_of_the_limit() -> None:
    """A12.2: even if its records are smaller. Only the first partition returns a first batch beyond the limit."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled_twice(cluster, client)
        limit = 1000
        assert await read(client, "t", "u", max_bytes=limit, partition_bytes=limit) == {"t": [0, 1, 2, 3], "u": []}
        assert counted(cluster, "remotefetchrequests") == 1
        assert await read(client, "t", "u", max_bytes=2, partition_bytes=1) == {"t": [0], "u": []}
        found = await read(client, "t", "u", max_bytes=2 * limit, partition_bytes=limit)
        assert found == {"t": [0, 1, 2, 3], "u": [0, 1, 2, 3]}

    with_tier(scenario)


def test_the_tier_is_not_read_when_the_limit_is_used_up() -> None:
    """A12.1."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled_twice(cluster, client)
        assert await read(client, "local", "t", "u", max_bytes=1) == {"local": [0], "t": [], "u": []}
        assert [counted(cluster, "remotefetchrequests"), cluster.brokers[1].metrics.value(EXPIRED)] == [0, 0]
        assert await read(client, "t", "local", max_bytes=1) == {"t": [0], "local": []}

    with_tier(scenario)


def test_a_fetch_waits_for_the_tier_as_long_as_the_broker_is_configured_to() -> None:
    """A12.3: independent of the max wait of the client."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        cluster.world.tier.offload_seconds = HANGS
        for wait_ms in (0, 500, 10_000):
            _, seconds = await timed(cluster, fetch(client, {("t", 0): 0}, max_wait_ms=wait_ms))
            assert seconds == pytest.approx(2, abs=0.1)
        await admin.alter_configs(client, BROKER_RESOURCE, "", {MAX_WAIT: "1200"})
        await until(lambda: cluster.brokers[1].config.get(MAX_WAIT) == 1200)
        _, seconds = await timed(cluster, fetch(client, {("t", 0): 0}))
        assert seconds == pytest.approx(1.2, abs=0.1)
        assert cluster.brokers[1].metrics.value(EXPIRED) == 4

    with_tier(scenario, remote_fetch_max_wait_ms=2000)


def test_a_timestamp_search_in_a_tier_that_hangs_times_out() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        cluster.world.tier.offload_seconds = HANGS
        for number, (asked, waited) in enumerate([(1500, 1.5), (0, 4.0)], start=1):
            error, seconds = await timed(cluster, search(client, 1, asked))
            assert error is ErrorCode.REQUEST_TIMED_OUT
            assert seconds == pytest.approx(waited, abs=0.1)
            assert cluster.brokers[1].metrics.value(EXPIRED_SEARCHES) == number
        assert replica(cluster).is_leader

    with_tier(scenario, remote_list_offsets_request_timeout_ms=4000)


def test_a_change_of_the_leader_ends_a_timestamp_search_with_not_leader_or_follower() -> None:
    """A17: only searches that took too long count as timed out."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        await until(lambda: len(partition_image(cluster).isr) == 2 and bases(cluster, 2) == [20])
        old = int(partition_image(cluster).leader)
        cluster.world.tier.offload_seconds = HANGS
        async with cluster.client("searcher") as searcher:
            waiting = asyncio.create_task(timed(cluster, search(searcher, old, 60_000)))
            await asyncio.sleep(0.1)
            assert await replicas.alter_reassignments(client, {("t", 0): (3 - old,)}) == {("t", 0): None}
            error, seconds = await waiting
        assert error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert seconds < 20
        assert cluster.brokers[old].metrics.value(EXPIRED_SEARCHES) == 0

    with_tier(scenario, brokers=2)
