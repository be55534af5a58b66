"""Brokers that send malformed responses to a client: it raises only KafkaError and connection errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from milena.client import admin, replicas
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.group_consumer import GroupConsumer
from milena.client.offsets import LATEST, find_offset
from milena.client.producer import Producer
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.links.outgoing import ChannelError
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.protocol.errors import KafkaError
from milena.runtime.randomness import Randomness
from tests.simulation.hostile import MISDEEDS, HostileNetwork
from tests.simulation.steps import create, seeds, values, write

RECORDS = 10
Foreseen = (KafkaError, ChannelError, TimeoutError)


def with_hostile_brokers(work: Callable[[Cluster, HostileNetwork], Awaitable[None]], seed: int) -> None:
    """Run ``work`` with a client that gets malformed responses; the topic ``t`` has RECORDS records."""

    async def run(world: World) -> None:
        cluster = await start_cluster(world, 2)
        async with cluster.client() as honest:
            await create(honest, replicas=2)
            await write(honest, RECORDS)
            runtime = world.machine("victim").start()
            network = HostileNetwork(runtime.network, Randomness(seed))
            network.misdeeds, network.one_in = MISDEEDS, 2
            client = Cluster(replace(runtime, network=network), addresses(cluster), "victim", request_timeout=2.0)
            async with asyncio.timeout(600):
                await work(client, network)
            assert network.done
            client.close()
            assert (await values(honest, RECORDS))[:RECORDS] == list(range(RECORDS))
        cluster.check_alive()

    simulate(run, seed=seed)


def addresses(cluster: SimulatedCluster) -> list[tuple[str, int]]:
    return [(host_of(number), 9092) for number in cluster.brokers]


@pytest.mark.parametrize("seed", seeds(4))
def test_a_producer_raises_only_foreseen_errors(seed: int) -> None:
    async def work(client: Cluster, _network: HostileNetwork) -> None:
        producer = Producer(client, request_timeout=2.0, delivery_timeout=20.0)
        for number in range(10):
            with suppress(*Foreseen):
                await producer.send("t", b"%-100d" % (RECORDS + number), partition=0)
        await producer.close(flush=False)

    with_hostile_brokers(work, seed)


@pytest.mark.parametrize("seed", seeds(4))
def test_a_consumer_raises_only_foreseen_errors(seed: int) -> None:
    async def work(client: Cluster, _network: HostileNetwork) -> None:
        consumer = Consumer(client, reset="earliest", max_wait_ms=100)
        consumer.assign({("t", 0): 0})
        for _ in range(20):
            with suppress(*Foreseen):
                await consumer.poll(0.5)
            await client.pause(3)
        await consumer.close()

    with_hostile_brokers(work, seed)


@pytest.mark.parametrize("seed", seeds(4))
def test_a_member_of_a_group_raises_only_foreseen_errors(seed: int) -> None:
    async def work(client: Cluster, _network: HostileNetwork) -> None:
        consumer = GroupConsumer(client, "g", ["t"])
        for _ in range(10):
            with suppress(*Foreseen):
                async with asyncio.timeout(5):
                    await consumer.poll(0.5)
            await client.pause(3)
        with suppress(*Foreseen):
            async with asyncio.timeout(20):
                await consumer.close()

    with_hostile_brokers(work, seed)


@pytest.mark.parametrize("seed", seeds(8))
def test_admin_requests_raise_only_foreseen_errors(seed: int) -> None:
    async def work(client: Cluster, _network: HostileNetwork) -> None:
        for number in range(10):
            topic = f"n{number}"
            asks: tuple[Callable[[], Awaitable[object]], ...] = (
                client.metadata,
                partial(admin.create_topics, client, [admin.NewTopic(topic, 1, 1)]),
                partial(admin.create_partitions, client, {topic: 2}),
                partial(admin.describe_configs, client, TOPIC_RESOURCE, topic),
                partial(admin.delete_records, client, {("t", 0): 0}),
                partial(admin.delete_topics, client, [topic]),
                partial(admin.list_groups, client),
                partial(admin.group_offsets, client, "g"),
                partial(admin.describe_group, client, "g"),
                partial(admin.delete_groups, client, ["g"]),
                partial(replicas.list_brokers, client),
                partial(replicas.list_reassignments, client, None),
                partial(replicas.describe_partitions, client, "t"),
                partial(replicas.describe_quorum, client),
                partial(find_offset, client, "t", 0, LATEST),
            )
            for ask in asks:
                with suppress(*Foreseen):
                    await ask()

    with_hostile_brokers(work, seed)
