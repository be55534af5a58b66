"""Replicas that join a partition whose first part is in the tier."""

from __future__ import annotations

from typing import Any

from milena.client import replicas
from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster
from milena.protocol.types import NodeId
from tests.simulation.steps import partition_image

A, B = 1, 2


async def call(cluster: SimulatedCluster, broker: int, command: str, **arguments: Any) -> Any:
    return await cluster.brokers[broker].lab_commands.call(command, **arguments)


def state_of(cluster: SimulatedCluster, broker: int = B) -> str:
    known = cluster.brokers[broker].fetchers.describe_partition("t", 0)
    return "" if known is None else str(known["state"])


async def records(cluster: SimulatedCluster, broker: int) -> dict[int, int]:
    """Offset to value of the records in the local log."""
    found = await call(cluster, broker, "read_log", topic="t", partition=0)
    return {offset: int(value) for offset, value, _ in found}


def joined(cluster: SimulatedCluster, *brokers: int) -> bool:
    return set(partition_image(cluster).isr) == set(brokers)


async def add_replica(client: Cluster, *brokers: int) -> None:
    results = await replicas.alter_reassignments(client, {("t", 0): list(map(NodeId, brokers))})
    assert not any(results.values()), results
