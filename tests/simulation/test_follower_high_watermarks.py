"""Followers get the last high watermark even if no more records are written, because consumers read from followers."""

from __future__ import annotations

import asyncio

from milena.client import admin
from milena.client.producer import Producer
from milena.lab.cluster import start_cluster
from milena.lab.world.world import World, simulate

PARTITIONS = 8


def test_a_follower_gets_the_high_watermark_that_its_own_fetch_has_advanced() -> None:
    """The fetch advances the high watermark of one partition, and returns at once with records of another."""

    async def run(world: World) -> dict[tuple[int, int], tuple[int, int]]:
        cluster = await start_cluster(world, 3)
        async with cluster.client() as client:
            assert set((await admin.create_topics(client, [admin.NewTopic("t", PARTITIONS, 3)])).values()) == {None}
            await asyncio.sleep(1)
            producers = [Producer(client) for _ in range(4)]
            for number in range(300):
                producer = producers[number % len(producers)]
                await producer.enqueue("t", b"x", partition=world.random.below(PARTITIONS))
                await asyncio.sleep(world.random.uniform(0, 0.001))
            for producer in producers:
                await producer.close()
        await asyncio.sleep(3)  # long enough for several fetches of the followers
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for number, broker in cluster.brokers.items():
            for index in range(PARTITIONS):
                partition = broker.partitions.get("t", index)
                assert partition.log is not None
                found[number, index] = partition.log.high_watermark, partition.log.log_end_offset
        return found

    for seed in range(5):
        marks = simulate(run, seed=seed)
        assert {place: mark for place, (mark, end) in marks.items() if mark != end} == {}
