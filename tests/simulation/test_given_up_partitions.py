"""A replica that cannot go on, though its disk works: its broker gives that one partition up, and another one leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

import pytest

from milena.broker.replica.partition import Partition
from milena.broker.server import Broker
from milena.client import admin
from milena.controller.commands import directories
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.metadata.image import PartitionImage
from milena.protocol.errors import KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import LOST_DIR, NodeId, Offset
from tests.simulation.steps import QUICK, create, until, values, write

Break: TypeAlias = Callable[[Partition], object]


def break_the_log(partition: Partition) -> None:
    with pytest.raises(KafkaError, match="an append must move the log end"):
        partition.online_log.appended(Offset(0), -1)


def break_the_partition(partition: Partition) -> None:
    partition.fail(BrokenInvariant("a planted one"))


def damage_the_log(partition: Partition) -> None:
    partition.online_log.damaged("a planted reason")


WAYS = pytest.mark.parametrize("break_it", [break_the_log, break_the_partition, damage_the_log])


def tolerant(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """As a real broker, whose errors do not end it."""
    monkeypatch.setattr(broker.runtime.contained, "_unforeseen", None)
    return broker


def seen(cluster: SimulatedCluster, topic: str = "t") -> PartitionImage:
    assert cluster.controller is not None
    found = cluster.controller.state.image.partition(topic, 0)
    assert found is not None
    return found


def directory_of(broker: Broker) -> UUID:
    (directory,) = broker.logs.online_dirs
    assert directory.directory_id is not None
    return directory.directory_id


@WAYS
def test_acks_all_goes_on_when_the_leader_gives_up(monkeypatch: pytest.MonkeyPatch, break_it: Break) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 3, QUICK)
        async with cluster.client() as client:
            await create(client, "t", replicas=3, configs={"min.insync.replicas": "2"})
            await create(client, "u", replicas=3)
            await write(client, 5)
            former = seen(cluster).leader
            broker = tolerant(cluster.brokers[former], monkeypatch)
            break_it(broker.partitions.get("t", 0))
            await write(client, 5, first=5)
            assert await values(client, 10) == list(range(10))
            now = seen(cluster)
            assert former not in (now.leader, *now.isr)
            assert now.directory_of(former) == LOST_DIR
            assert former in seen(cluster, "u").isr, "the others of this broker go on"
            await cluster.stop_broker(former)
            again = await cluster.start_broker(former)
            await until(lambda: len(seen(cluster).isr) == 3)
            assert seen(cluster).directory_of(former) == directory_of(again)
            assert again.partitions.get("t", 0).online_log.log_end_offset == 10
        cluster.check_alive()

    simulate(scenario, seed=1)


@WAYS
def test_a_follower_that_gives_up_leaves_the_isr_at_once(monkeypatch: pytest.MonkeyPatch, break_it: Break) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 2, {**QUICK, "replica_lag_time_max_ms": 60_000})
        async with cluster.client() as client:
            await create(client, "t", replicas=2)
            await write(client, 5)
            leader = seen(cluster).leader
            (follower,) = {NodeId(1), NodeId(2)} - {leader}
            break_it(tolerant(cluster.brokers[follower], monkeypatch).partitions.get("t", 0))
            began = asyncio.get_running_loop().time()
            await write(client, 1, first=5)
            assert asyncio.get_running_loop().time() - began < 5
            assert seen(cluster).isr == (leader,)
        cluster.check_alive()

    simulate(scenario, seed=1)


@WAYS
def test_the_only_replica_leads_again_after_a_restart(monkeypatch: pytest.MonkeyPatch, break_it: Break) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        async with cluster.client() as client:
            await create(client, "t")
            await write(client, 5)
            break_it(tolerant(cluster.brokers[1], monkeypatch).partitions.get("t", 0))
            await until(lambda: seen(cluster).leader == -1)
            assert seen(cluster).isr == (1,)
            await cluster.stop_broker(1)
            again = await cluster.start_broker(1)
            await write(client, 1, first=5)
            assert await values(client, 6) == list(range(6))
            assert seen(cluster).directory_of(NodeId(1)) == directory_of(again)
        cluster.check_alive()

    simulate(scenario, seed=1)


def test_a_partition_that_was_given_up_and_is_lost_then_is_not_led_by_an_empty_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        async with cluster.client() as client:
            await create(client, "t")
            await create(client, "u")
            await write(client, 5)
            break_the_log(tolerant(cluster.brokers[1], monkeypatch).partitions.get("t", 0))
            await until(lambda: seen(cluster).leader == -1)
            await cluster.stop_broker(1)
            storage = world.machine(host_of(1)).storage
            for path in [path for path in storage.files if path.startswith("/data/t-0/")]:
                del storage.files[path]
            del storage.folders["/data/t-0"]
            again = await cluster.start_broker(1)
            await write(client, 1, topic="u")
            assert seen(cluster).leader == -1
            assert again.partitions.get("t", 0).log is None
        cluster.check_alive()

    simulate(scenario, seed=1)


@WAYS
def test_a_topic_that_was_given_up_can_be_deleted_and_made_again(
    monkeypatch: pytest.MonkeyPatch, break_it: Break
) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        async with cluster.client() as client:
            await create(client, "t")
            await write(client, 5)
            broker = tolerant(cluster.brokers[1], monkeypatch)
            break_it(broker.partitions.get("t", 0))
            await until(lambda: seen(cluster).leader == -1)
            assert await admin.delete_topics(client, ["t"]) == {"t": None}
            await create(client, "t")
            await write(client, 2)
            assert await values(client, 2) == [0, 1]
        cluster.check_alive()

    simulate(scenario, seed=1)


async def assign(cluster: SimulatedCluster, broker: Broker, directory: UUID) -> None:
    """As an assignment of this broker that was held up on its way."""
    controller = cluster.controller
    assert controller is not None
    key = (broker.partitions.get("t", 0).topic_id, 0)
    result = directories.assign(controller.state, broker.node_id, broker.lifecycle.epoch, {directory: [key]})
    await controller.metadata.write(result.records, atomic=result.atomic)


def test_a_late_assignment_does_not_bring_back_what_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        async with cluster.client() as client:
            await create(client, "t")
            broker = tolerant(cluster.brokers[1], monkeypatch)
            break_the_partition(broker.partitions.get("t", 0))
            await until(lambda: seen(cluster).leader == -1)
            await assign(cluster, broker, directory_of(broker))
            assert seen(cluster).leader == 1, "a leader without a log"
            await until(lambda: seen(cluster).leader == -1)
            assert seen(cluster).directory_of(NodeId(1)) == LOST_DIR
        cluster.check_alive()

    simulate(scenario, seed=1)


def test_a_late_report_of_a_loss_does_not_keep_down_what_is_online() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        async with cluster.client() as client:
            await create(client, "t")
            await write(client, 5)
            broker = cluster.brokers[1]
            await assign(cluster, broker, LOST_DIR)
            await write(client, 5, first=5)
            assert await values(client, 10) == list(range(10))
            assert seen(cluster).directory_of(NodeId(1)) == directory_of(broker)
        cluster.check_alive()

    simulate(scenario, seed=1)
