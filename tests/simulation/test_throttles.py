"""Replication throttles in a cluster: they slow only replicas that are out of sync."""

from __future__ import annotations

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.producer import Producer
from milena.lab.cluster import SimulatedCluster, host_of
from milena.node.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from tests.simulation.moved_logs import fill, move, on_brokers, other_than
from tests.simulation.steps import directory_of, until
from tests.simulation.three_brokers import BROKERS, content, in_sync, leader_of, on_three_brokers, replica

SIZE = 10_000
MISSED = 40
LIMIT = 20_000
"""Bytes a second: the missed records take 20 s."""


async def write_large(client: Cluster, count: int) -> None:
    producer = Producer(client, request_timeout=2.0, delivery_timeout=60.0)
    for _ in range(count):
        await producer.send("t", b" " * SIZE, partition=0)
    await producer.close()


async def throttle(client: Cluster, side: str) -> None:
    await admin.alter_configs(client, BROKER_RESOURCE, "", {f"{side}.replication.throttled.rate": str(LIMIT)})
    await admin.alter_configs(client, TOPIC_RESOURCE, "t", {f"{side}.replication.throttled.replicas": "*"})


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_replica_catches_up_at_the_configured_rate(side: str) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        clock = client.runtime.clock
        away = next(one for one in BROKERS if one != leader_of(cluster))
        await cluster.kill(host_of(away))
        await write_large(client, MISSED)
        await throttle(client, side)
        began = clock.monotonic()
        await cluster.start_broker(away)
        await until(lambda: in_sync(cluster) == BROKERS, 120)
        assert 0.8 * MISSED * SIZE / LIMIT < clock.monotonic() - began < 2 * MISSED * SIZE / LIMIT
        assert content(cluster, away) == content(cluster, leader_of(cluster))
        began = clock.monotonic()
        await write_large(client, MISSED)
        assert clock.monotonic() - began < 1, "in sync: acks=all is not held up"
        assert in_sync(cluster) == BROKERS

    on_three_brokers(scenario, replica_fetch_max_bytes=2 * SIZE)


def test_a_replica_catches_up_at_once_when_its_throttle_is_removed() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        clock = client.runtime.clock
        away = next(one for one in BROKERS if one != leader_of(cluster))
        await cluster.kill(host_of(away))
        await write_large(client, MISSED)
        for side in ("leader", "follower"):
            await throttle(client, side)
        await cluster.start_broker(away)
        await until(lambda: replica(cluster, away).online_log.log_end_offset > 0, 60)
        assert replica(cluster, away).online_log.log_end_offset < MISSED / 2
        began = clock.monotonic()
        for side in ("leader", "follower"):
            await admin.alter_configs(client, TOPIC_RESOURCE, "t", {}, [f"{side}.replication.throttled.replicas"])
        await until(lambda: in_sync(cluster) == BROKERS, 10)
        assert clock.monotonic() - began < 3

    on_three_brokers(scenario, replica_fetch_max_bytes=2 * SIZE)


def test_a_throttled_move_between_directories_has_the_configured_rate() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        clock = client.runtime.clock
        partition = replica(cluster, 1)
        fill(partition)
        total = partition.online_log.log_end_offset * (64 << 10)
        limit = total // 10
        key = "replica.alter.log.dirs.io.max.bytes.per.second"
        await admin.alter_configs(client, BROKER_RESOURCE, "1", {key: str(limit)})
        target = other_than(directory_of(cluster, 1))
        began = clock.monotonic()
        await move(client, 1, target)
        await until(lambda: directory_of(cluster, 1) == target, 60)
        # The last MiB is copied at once, and the first window is not throttled.
        assert 4 < clock.monotonic() - began < 15

    on_brokers(1, scenario)
