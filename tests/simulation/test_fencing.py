"""A broker whose heartbeats the controller misses is fenced and loses its leaderships; it leads again afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from milena.client.cluster import Cluster
from milena.lab.cluster import CONTROLLER, SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.simulation.steps import (
    QUICK,
    broker_image,
    create,
    partition_image,
    produce_once,
    seeds,
    until,
    values,
    write,
)

SESSION = 3.0
RECORDS = 10


def on_two_brokers(scenario: Callable[[SimulatedCluster, Cluster], Awaitable[None]], *, seed: int = 1) -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, 2, QUICK)
        async with cluster.client() as client:
            await scenario(cluster, client)
        cluster.check_alive()

    simulate(run, seed=seed)


async def led_by(cluster: SimulatedCluster, client: Cluster, broker: int) -> str:
    """Create a topic of one partition with one replica on ``broker``; return its name."""
    for number in range(10):
        name = f"t{number}"
        await create(client, name)
        if partition_image(cluster, name).leader == broker:
            assert partition_image(cluster, name).isr == (broker,)
            return name
    raise AssertionError(f"broker {broker} leads none of ten topics")


@pytest.mark.parametrize("seed", seeds(4))
def test_a_broker_that_is_cut_off_is_fenced_and_elected_again(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        topic = await led_by(cluster, client, 1)
        await write(client, RECORDS, topic)
        before, registered_in = partition_image(cluster, topic), broker_image(cluster, 1).epoch
        cluster.world.fabric.cut(host_of(1), CONTROLLER)

        # Not before its session has run out.
        await asyncio.sleep(SESSION - 1)
        assert not broker_image(cluster, 1).fenced and cluster.brokers[1].healthy
        await until(lambda: broker_image(cluster, 1).fenced, SESSION)
        assert [cluster.brokers[1].ready, cluster.brokers[1].healthy] == [True, False]
        cut_off = partition_image(cluster, topic)
        assert (cut_off.leader, cut_off.isr) == (-1, (1,))
        assert cut_off.leader_epoch == before.leader_epoch + 1

        # The other broker reports to clients that there is no leader.
        await until(lambda: cluster.brokers[2].image.topics[topic].partitions[0].leader == -1)
        response = await client.to(host_of(2), 9092).request(ApiKey.METADATA, topics=[{"name": topic}])
        assert [broker.node_id for broker in response.brokers] == [2]
        found = response.topics[0].partitions[0]
        assert (found.error_code, found.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)

        # It does not know, and no other broker may lead: the records that it accepts now are kept.
        assert await produce_once(client, 1, topic) is ErrorCode.NONE

        cluster.world.fabric.heal(host_of(1), CONTROLLER)
        await until(lambda: not broker_image(cluster, 1).fenced, 30)
        await until(lambda: cluster.brokers[1].healthy)
        after = partition_image(cluster, topic)
        assert (after.leader, after.isr, after.leader_epoch) == (1, (1,), before.leader_epoch + 2)
        assert broker_image(cluster, 1).epoch == registered_in
        await until(lambda: cluster.brokers[1].partitions.get(topic, 0).leader_epoch == after.leader_epoch)
        assert await values(client, RECORDS + 1, topic) == [*range(RECORDS), -1]

    on_two_brokers(scenario, seed=seed)


def test_a_broker_with_late_heartbeats_within_its_session_is_not_fenced() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        for _ in range(5):
            cluster.world.fabric.cut(host_of(1), CONTROLLER)
            await asyncio.sleep(SESSION / 3)
            cluster.world.fabric.heal(host_of(1), CONTROLLER)
            await asyncio.sleep(SESSION / 3)
            assert not broker_image(cluster, 1).fenced

    on_two_brokers(scenario)


@pytest.mark.parametrize("seed", seeds(5))
def test_a_paused_controller_handles_pending_heartbeats_before_it_fences_brokers(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        topic = await led_by(cluster, client, 1)
        before = partition_image(cluster, topic)
        cluster.world.machine(CONTROLLER).pause()
        await asyncio.sleep(3 * SESSION)
        cluster.world.machine(CONTROLLER).resume()
        await asyncio.sleep(SESSION / 2)
        after = partition_image(cluster, topic)
        assert (after.leader, after.leader_epoch) == (1, before.leader_epoch)
        # A broker that has died since then is fenced.
        cluster.world.machine(CONTROLLER).pause()
        cluster.world.machine(host_of(1)).power_off()
        await asyncio.sleep(3 * SESSION)
        cluster.world.machine(CONTROLLER).resume()
        await until(lambda: broker_image(cluster, 1).fenced, 2 * SESSION)

    on_two_brokers(scenario, seed=seed)


def test_a_killed_broker_is_fenced_and_its_next_incarnation_leads_again() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        topic = await led_by(cluster, client, 1)
        await write(client, RECORDS, topic)
        before, registered_in = partition_image(cluster, topic), broker_image(cluster, 1).epoch
        await cluster.kill(host_of(1))
        await until(lambda: broker_image(cluster, 1).fenced)
        assert (partition_image(cluster, topic).leader, partition_image(cluster, topic).isr) == (-1, (1,))
        await cluster.start_broker(1)
        after = partition_image(cluster, topic)
        assert (after.leader, after.isr) == (1, (1,))
        assert after.leader_epoch == before.leader_epoch + 2
        assert broker_image(cluster, 1).epoch > registered_in
        assert await values(client, RECORDS, topic) == list(range(RECORDS))

    on_two_brokers(scenario)


def test_a_controlled_shutdown_does_not_wait_for_a_session_timeout() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        topic = await led_by(cluster, client, 1)
        began = cluster.world.loop.time()
        await cluster.stop_broker(1)
        assert broker_image(cluster, 1).fenced
        assert (partition_image(cluster, topic).leader, partition_image(cluster, topic).isr) == (-1, (1,))
        await cluster.start_broker(1)
        assert partition_image(cluster, topic).leader == 1
        assert cluster.world.loop.time() - began < SESSION

    on_two_brokers(scenario)


def test_brokers_keep_their_leaderships_while_the_controller_is_down() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        topic = await led_by(cluster, client, 1)
        await write(client, RECORDS, topic)
        before = partition_image(cluster, topic)
        await cluster.kill(CONTROLLER)
        await asyncio.sleep(4 * SESSION)
        await write(client, RECORDS, topic, first=RECORDS)
        await cluster.start_controller()
        await asyncio.sleep(2 * SESSION)
        after = partition_image(cluster, topic)
        assert (after.leader, after.leader_epoch) == (1, before.leader_epoch)
        assert not broker_image(cluster, 1).fenced
        assert await values(client, 2 * RECORDS, topic) == list(range(2 * RECORDS))

    on_two_brokers(scenario)
