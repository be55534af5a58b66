"""A replica fails though its disk works: its broker takes only this partition offline, and another broker leads."""

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
    """Let the broker survive unexpected errors, as a real broker does."""
    monkeypatch.setattr(broker.runtime.contained, "_unforeseen", None)
    return broker


def image_of(cluster: SimulatedCluster, topic: str = "t") -> PartitionImage:
    assert cluster.controller is not None
    found = cluster.controller.state.image.partition(topic, 0)
    assert found is not None
    return found


def directory_of(broker: Broker) -> UUID:
    (directory,) = broker.logs.online_dirs
    assert directory.directory_id is not None
    return directory.directory_id


@WAYS
def test_writes_with_acks_all_continue_when_the_leader_fails_its_partition(
    monkeypatch: pytest.MonkeyPatch, break_it: Break
) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 3, QUICK)
        async with cluster.client() as client:
            await create(client, "t", replicas=3, configs={"min.insync.replicas": "2"})
            await create(client, "u", replicas=3)
            await write(client, 5)
            former = image_of(cluster).leader
            broker = tolerant(cluster.brokers[former], monkeypatch)
            break_it(broker.partitions.get("t", 0))
            await write(client, 5, first=5)
            assert await values(client, 10) == list(range(10))
            now = image_of(cluster)
            assert former not in (now.leader, *now.isr)
            assert now.directory_of(former) == LOST_DIR
            assert former in image_of(cluster, "u").isr, "the other partitions of this broker stay in sync"
            await cluster.stop_broker(former)
            again = await cluster.start_broker(former)
            await until(lambda: len(image_of(cluster).isr) == 3)
            assert image_of(cluster).directory_of(former) == directory_of(again)
            assert again.partitions.get("t", 0).online_log.log_end_offset == 10
        cluster.check_alive()

    simulate(scenario, seed=1)


@WAYS
def test_a_follower_that_fails_its_partition_leaves_the_isr_at_once(
    monkeypatch: pytest.MonkeyPatch, break_it: Break
) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 2, {**QUICK, "replica_lag_time_max_ms": 60_000})
        async with cluster.client() as client:
            await create(client, "t", replicas=2)
            await write(client, 5)
            leader = image_of(cluster).leader
            (follower,) = {NodeId(1), NodeId(2)} - {leader}
            break_it(tolerant(cluster.brokers[follower], monkeypatch).partitions.get("t", 0))
            began = asyncio.get_running_loop().time()
            await write(client, 1, first=5)
            assert asyncio.get_running_loop().time() - began < 5
            assert image_of(cluster).isr == (leader,)
        cluster.check_alive()

    simulate(scenario, seed=1)


@WAYS
def test_a_failed_partition_with_one_replica_is_led_again_after_a_restart(
    monkeypatch: pytest.MonkeyPatch, break_it: Break
) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        async with cluster.client() as client:
            await create(client, "t")
            await write(client, 5)
            break_it(tolerant(cluster.brokers[1], monkeypatch).partitions.get("t", 0))
            await until(lambda: image_of(cluster).leader == -1)
            assert image_of(cluster).isr == (1,)
            await cluster.stop_broker(1)
            again = await cluster.start_broker(1)
            await write(client, 1, first=5)
            assert await values(client, 6) == list(range(6))
            assert image_of(cluster).directory_of(NodeId(1)) == directory_of(again)
        cluster.check_alive()

    simulate(scenario, seed=1)


def test_a_failed_partition_whose_log_is_lost_is_not_led_with_an_empty_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        async with cluster.client() as client:
            await create(client, "t")
            await create(client, "u")
            await write(client, 5)
            break_the_log(tolerant(cluster.brokers[1], monkeypatch).partitions.get("t", 0))
            await until(lambda: image_of(cluster).leader == -1)
            await cluster.stop_broker(1)
            storage = world.machine(host_of(1)).storage
            for path in [path for path in storage.files if path.startswith("/data/t-0/")]:
                del storage.files[path]
            del storage.folders["/data/t-0"]
            again = await cluster.start_broker(1)
            await write(client, 1, topic="u")
            assert image_of(cluster).leader == -1
            assert again.partitions.get("t", 0).log is None
        cluster.check_alive()

    simulate(scenario, seed=1)


@WAYS
def test_a_topic_with_a_failed_partition_can_be_deleted_and_created_again(
    monkeypatch: pytest.MonkeyPatch, break_it: Break
) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        async with cluster.client() as client:
            await create(client, "t")
            await write(client, 5)
            broker = tolerant(cluster.brokers[1], monkeypatch)
            break_it(broker.partitions.get("t", 0))
            await until(lambda: image_of(cluster).leader == -1)
            assert await admin.delete_topics(client, ["t"]) == {"t": None}
            await create(client, "t")
            await write(client, 2)
            assert await values(client, 2) == [0, 1]
        cluster.check_alive()

    simulate(scenario, seed=1)


async def assign(cluster: SimulatedCluster, broker: Broker, directory: UUID) -> None:
    """Write the records of a delayed AssignReplicasToDirs request of this broker."""
    controller = cluster.controller
    assert controller is not None
    key = (broker.partitions.get("t", 0).topic_id, 0)
    result = directories.assign(controller.state, broker.node_id, broker.lifecycle.epoch, {directory: [key]})
    await controller.metadata.write(result.records, atomic=result.atomic)


def test_a_late_directory_assignment_does_not_bring_a_failed_partition_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        async with cluster.client() as client:
            await create(client, "t")
            broker = tolerant(cluster.brokers[1], monkeypatch)
            break_the_partition(broker.partitions.get("t", 0))
            await until(lambda: image_of(cluster).leader == -1)
            await assign(cluster, broker, directory_of(broker))
            assert image_of(cluster).leader == 1, "a leader without a log"
            await until(lambda: image_of(cluster).leader == -1)
            assert image_of(cluster).directory_of(NodeId(1)) == LOST_DIR
        cluster.check_alive()

    simulate(scenario, seed=1)


def test_a_late_assignment_to_the_lost_directory_does_not_keep_a_partition_offline() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK)
        async with cluster.client() as client:
            await create(client, "t")
            await write(client, 5)
            broker = cluster.brokers[1]
            await assign(cluster, broker, LOST_DIR)
            await write(client, 5, first=5)
            assert await values(client, 10) == list(range(10))
            assert image_of(cluster).directory_of(NodeId(1)) == directory_of(broker)
        cluster.check_alive()

    simulate(scenario, seed=1)
