"""Helpers of tests that count and time reads from the tier."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster
from tests.simulation.steps import create, until, write
from tests.simulation.tiered_topics import TIERED, bases

T = TypeVar("T")
TOPIC = "kafka_server_brokertopicmetrics"
EXPIRED = "kafka_server_delayedremotefetchmetrics_expirespersec_total"
HANGS = (3600.0, 3600.0)
"""The range of seconds that an operation on the tier takes while it hangs."""


def counted(cluster: SimulatedCluster, name: str, broker: int = 1) -> float:
    return cluster.brokers[broker].metrics.value(f"{TOPIC}_{name}persec_total", topic="t")


async def timed(cluster: SimulatedCluster, work: Awaitable[T]) -> tuple[T, float]:
    """The result of the work, and the virtual seconds that it took."""
    clock = cluster.brokers[1].runtime.clock
    begin = clock.monotonic()
    return await work, clock.monotonic() - begin


async def filled(cluster: SimulatedCluster, client: Cluster) -> None:
    """Write 22 records, and wait until 20 of them are only in the tier."""
    await write(client, 22)
    await until(lambda: bases(cluster) == [20])


async def filled_twice(cluster: SimulatedCluster, client: Cluster) -> None:
    """Fill the topics ``t`` and ``u``, each with 20 records that are only in the tier, and ``local`` with 3 records."""
    await create(client, "u", configs=TIERED)
    await create(client, "local")
    await filled(cluster, client)
    await write(client, 22, "u")
    await write(client, 3, "local")
    other = cluster.brokers[1].partitions.get("u", 0).online_log
    await until(lambda: other.local_log_start_offset == 20)
