"""Helpers of tests that move logs between log directories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from milena.broker.replica.partition import Partition
from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.records import Record, build_batch
from tests.simulation.steps import (
    DIRS,
    OF_BROKERS,
    QUICK,
    create,
)

FILLED = 50


def on_brokers(count: int, scenario: Callable[[SimulatedCluster, Cluster], Awaitable[None]], *, seed: int = 1) -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, count, QUICK, of_brokers=OF_BROKERS)
        async with cluster.client() as client:
            await create(client, replicas=count, configs={"segment.bytes": "1048576"})
            await scenario(cluster, client)
        cluster.check_alive()

    simulate(run, seed=seed)


def other_than(directory: str) -> str:
    return DIRS[1 - DIRS.index(directory)]


def fill(partition: Partition) -> None:
    """Write several segments, so that a move copies more than one piece."""
    for _ in range(FILLED):
        data = build_batch([Record(0, 0, None, b"-1" + b" " * 65_536)], base_timestamp=1)
        partition.append(memoryview(bytearray(data)), 1)


async def move(client: Cluster, broker: int, path: str, topic: str = "t", partition: int = 0) -> ErrorCode:
    response = await client.to(host_of(broker), 9092).request(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        dirs=[{"path": path, "topics": [{"name": topic, "partitions": [partition]}]}],
    )
    return ErrorCode(int(response.results[0].partitions[0].error_code))
