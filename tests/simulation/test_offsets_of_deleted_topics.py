"""Offsets of topics that were deleted while their groups had no coordinator."""

from __future__ import annotations

import contextlib
from typing import Any

from milena.client.admin import delete_topics
from milena.client.cluster import Cluster
from milena.client.membership import find_coordinator
from milena.lab.cluster import CONTROLLER, CONTROLLER_PORT, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.links.outgoing import Channel
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import KafkaError
from tests.simulation.steps import QUICK, create


async def coordinator(client: Cluster) -> Channel:
    """Wait until the coordinator has loaded the group; return a channel to it."""
    attempt = 0
    while True:
        with contextlib.suppress(KafkaError):
            channel = client.to(*await find_coordinator(client, "g"))
            described = await channel.request(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"])
            if not described.groups[0].error_code:
                return channel
        await client.pause(attempt)
        attempt += 1


async def commit(client: Cluster, offset: int) -> None:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    topics = [{"name": "t", "partitions": [partition]}]
    fields: dict[str, Any] = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    answer = await (await coordinator(client)).request(ApiKey.OFFSET_COMMIT, 8, **fields)
    assert not answer.topics[0].partitions[0].error_code


async def committed(client: Cluster) -> int:
    """The committed offset; -1 if there is none."""
    asked = [{"name": "t", "partition_indexes": [0]}]
    answer = await (await coordinator(client)).request(ApiKey.OFFSET_FETCH, 5, group_id="g", topics=asked)
    return int(answer.topics[0].partitions[0].committed_offset)


async def delete_at_the_controller(client: Cluster) -> None:
    channel = client.separate_channel(CONTROLLER, CONTROLLER_PORT)
    answer = await channel.request(ApiKey.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=5000)
    assert not answer.responses[0].error_code
    channel.close()


def test_the_offset_of_a_deleted_topic_stays_deleted_when_a_later_topic_of_the_name_is_deleted() -> None:
    found: list[int] = []

    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        async with cluster.client() as client:
            await create(client)
            await commit(client, 7)
            found.append(await committed(client))
            await cluster.stop_broker(1)
            await delete_at_the_controller(client)
            await cluster.start_broker(1)
            await create(client)
            found.append(await committed(client))
            assert await delete_topics(client, ["t"]) == {"t": None}
            found.append(await committed(client))

    simulate(scenario, seed=1)
    assert found == [7, -1, -1]
