"""Helpers of tests with one partition on three brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from milena.broker.replica.partition import Partition
from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, start_cluster
from milena.lab.world.world import World, simulate
from tests.simulation.steps import QUICK, create, partition_image, until

BROKERS = (1, 2, 3)
RECORDS = 30
CONFIGS = {"min.insync.replicas": "2"}


def on_three_brokers(
    scenario: Callable[[SimulatedCluster, Cluster], Awaitable[None]], *, seed: int = 1, **overrides: object
) -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, 3, QUICK | overrides)
        async with cluster.client() as client:
            await create(client, replicas=3, configs=CONFIGS)
            await until(lambda: in_sync(cluster) == BROKERS, 10)
            await scenario(cluster, client)
        cluster.check_alive()

    simulate(run, seed=seed)


def in_sync(cluster: SimulatedCluster) -> tuple[int, ...]:
    return tuple(sorted(partition_image(cluster).isr))


def replica(cluster: SimulatedCluster, broker: int) -> Partition:
    found = cluster.brokers[broker].partitions.find("t", 0)
    assert found is not None
    return found


def content(cluster: SimulatedCluster, broker: int) -> bytes:
    log = replica(cluster, broker).online_log
    return bytes(log.read_bytes(log.log_start_offset, 1 << 20, upper=log.log_end_offset, min_one=True))


def leader_of(cluster: SimulatedCluster) -> int:
    return int(partition_image(cluster).leader)
