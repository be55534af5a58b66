"""The remote segments of a deleted topic are deleted by its leader, or by a remaining broker that had a replica."""

from __future__ import annotations

import asyncio

import pytest

from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of
from milena.protocol.api_keys import ApiKey
from milena.tiered.metadata.serialization import MetadataEvent
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState
from tests.simulation.steps import until, write
from tests.simulation.tiered_topics import bases, in_tier, published, stored, with_tier

A, B, C = 1, 2, 3
MARKED, GONE = RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


async def in_tier_with_a_leader_that_is_away(cluster: SimulatedCluster, client: Cluster) -> None:
    await write(client, 10)
    await until(lambda: all(bases(cluster, number) == [8] for number in (A, B, C)))
    cluster.world.machine(host_of(A)).pause()
    channel = client.to(host_of(B), 9092)
    await channel.connect()
    await channel.request(
        ApiKey.DELETE_TOPICS, topics=[{"name": "t", "topic_id": None}], topic_names=["t"], timeout_ms=1000
    )


def topics(cluster: SimulatedCluster) -> set[str]:
    return set(cluster.brokers[B].image.topics)


@pytest.mark.parametrize("seed", range(2))
def test_the_other_replicas_delete_remote_segments_if_the_leader_ends_before_it_begins(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await in_tier_with_a_leader_that_is_away(cluster, client)
        await until(lambda: "t" not in topics(cluster), 30)
        await cluster.kill(host_of(A))
        await until(lambda: stored(cluster) == [], 600)

    with_tier(scenario, seed=seed, brokers=3, rlmm_config_remote_log_metadata_topic_replication_factor=3)


def test_the_leader_deletes_the_remote_segments_first() -> None:
    """The other brokers find no segments left, and publish no metadata."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 10)
        await until(lambda: all(bases(cluster, number) == [8] for number in (A, B, C)))
        channel = client.to(host_of(B), 9092)
        await channel.connect()
        await channel.request(
            ApiKey.DELETE_TOPICS, topics=[{"name": "t", "topic_id": None}], topic_names=["t"], timeout_ms=1000
        )
        await until(lambda: in_tier(cluster) == [], 30)
        await asyncio.sleep(600)
        ended: list[MetadataEvent] = [one for one in published(cluster) if one.state in (MARKED, GONE)]
        assert {one.broker_id for one in ended} == {A} and len(ended) == 2 * len({one.segment_id for one in ended})

    with_tier(scenario, brokers=3)
