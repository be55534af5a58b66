"""A group whose members die, and whose coordinators are killed one after the other: the next member waits for at most
one session timeout after the new coordinator has loaded the group."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from milena.client.cluster import Cluster
from milena.client.membership import find_coordinator
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.links.outgoing import Channel, ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from tests.simulation.served_apis import joining, syncing
from tests.simulation.steps import QUICK

GROUP = "g"
SESSION_MS = 10_000
SLACK = 0.5
"""Seconds for the delays of the simulated network."""
CONFIG = QUICK | {
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 3,
    "group_initial_rebalance_delay_ms": 0,
}


async def coordinator(client: Cluster) -> tuple[int, Channel]:
    """Wait until a broker has loaded the group; return its id and a channel to it."""
    attempt = 0
    while True:
        with contextlib.suppress(KafkaError, ChannelError, TimeoutError):
            host, port = await find_coordinator(client, GROUP)
            channel = client.to(host, port)
            described = await channel.request(ApiKey.DESCRIBE_GROUPS, 5, groups=[GROUP])
            if not described.groups[0].error_code:
                return int(host.removeprefix("broker-")), channel
        await client.pause(attempt)
        attempt += 1


async def join(channel: Channel, **fields: Any) -> Any:
    """Join as a new member; return the response to the second JoinGroup. The rebalance timeout exceeds the session."""
    asked = joining(GROUP) | {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": 300_000} | fields
    asked["member_id"] = (await channel.request(ApiKey.JOIN_GROUP, 9, **asked)).member_id
    return await channel.request(ApiKey.JOIN_GROUP, 9, timeout=600.0, **asked)


async def synced(channel: Channel, joined: Any) -> None:
    assert not joined.error_code, ErrorCode(joined.error_code)
    asked = syncing(GROUP, joined.member_id) | {"generation_id": joined.generation_id}
    assert not (await channel.request(ApiKey.SYNC_GROUP, 5, **asked)).error_code


async def kill(cluster: SimulatedCluster, client: Cluster, broker: int) -> tuple[int, Channel, float]:
    """Kill the broker; return the next coordinator, a channel to it, and a time when it has loaded the group."""
    await cluster.kill(host_of(broker))
    found, channel = await coordinator(client)
    assert found != broker
    return found, channel, asyncio.get_running_loop().time()


@pytest.mark.parametrize("kills", [1, 2])
@pytest.mark.parametrize("rebalancing", [False, True], ids=["stable", "while-another-joins"])
def test_a_new_member_waits_for_at_most_one_session_timeout(kills: int, rebalancing: bool) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 3, CONFIG | {"min_insync_replicas": 1})
        async with cluster.client() as client, asyncio.TaskGroup() as tasks:
            broker, channel = await coordinator(client)
            await synced(channel, await join(channel))
            waiting = tasks.create_task(lost(join(channel))) if rebalancing else None
            await asyncio.sleep(1)
            for _ in range(kills):
                broker, channel, loaded = await kill(cluster, client, broker)
            joined = await join(channel)
            await synced(channel, joined)
            waited = asyncio.get_running_loop().time() - loaded
            assert waited <= SESSION_MS / 1000 + SLACK
            assert [joined.generation_id, len(joined.members)] == [2, 1]
            if waiting is not None:
                await waiting

    simulate(scenario, seed=1)


async def lost(answer: Any) -> None:
    """Expect that no response comes, because the coordinator is killed."""
    with pytest.raises(ChannelError):
        await answer
