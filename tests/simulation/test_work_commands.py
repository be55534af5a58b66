"""The lab commands that let a broker work on its logs and on the tier now, and wait until it is idle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.producer import Producer
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.serving.lab_commands import LabCommandError
from tests.simulation.joining_replicas import A, B, add_replica, call
from tests.simulation.steps import QUICK, create, until, write
from tests.simulation.tiered_topics import finished, with_tier

BY_HAND: dict[str, Any] = {
    "remote_log_manager_task_interval_ms": 3_600_000,
    "internal_remote_log_manager_task_initial_delay_ms": 3_600_000,
    "log_retention_check_interval_ms": 3_600_000,
}
"""The broker works on the tier only when a test requests it."""
LARGE = {"internal.segment.bytes": "1000000"}


async def write_keys(client: Cluster, count: int, keys: int = 2) -> None:
    producer = Producer(client, request_timeout=2.0, delivery_timeout=60.0)
    for number in range(count):
        await producer.send("t", b"%d" % number, key=b"%d" % (number % keys), partition=0)
    await producer.close()


def leader_of(cluster: SimulatedCluster, topic: str) -> int:
    return next(number for number, broker in cluster.brokers.items() if broker.partitions.get(topic, 0).is_leader)


async def reasons(cluster: SimulatedCluster, broker: int) -> list[str]:
    found: list[str] = (await call(cluster, broker, "busy"))["reasons"]
    return found


def test_a_compacted_log_is_cleaned_now_though_it_is_hardly_dirty() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, overrides={"log_cleaner_backoff_ms": 3_600_000})
        async with cluster.client() as client:
            configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
            await admin.create_topics(client, [admin.NewTopic("t", 1, 1, configs=configs)])
            await write_keys(client, 6)
            assert await call(cluster, A, "compact", topic="t", partition=0) == {"cleaned_to": None}, (
                "the active segment"
            )
            await call(cluster, A, "roll", topic="t", partition=0)
            cleaned = await call(cluster, A, "compact", topic="t", partition=0)
            assert cleaned["cleaned_to"] == 6
            found = await call(cluster, A, "read_log", topic="t", partition=0)
            assert [(offset, value) for offset, value, _ in found] == [(4, "4"), (5, "5")]
            await create(client, "u")
            with pytest.raises(LabCommandError, match="compact: u-0 is not compacted: its "):
                await call(cluster, A, "compact", topic="u", partition=0)

    simulate(scenario, seed=1)


def test_retention_is_applied_to_all_logs_to_a_topic_or_to_a_partition() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, overrides={"log_retention_check_interval_ms": 3_600_000})
        async with cluster.client() as client:
            for topic in ("t", "u"):
                new = admin.NewTopic(topic, 2, 1, configs={"retention.ms": "1000"})
                assert await admin.create_topics(client, [new]) == {topic: None}
                for partition in range(2):
                    await write(client, 1, topic, partition)
            await asyncio.sleep(2)
            assert await call(cluster, A, "retain", topic="t", partition=1) == {"t-1": 1}
            assert await call(cluster, A, "retain", topic="t") == {"t-0": 1}
            assert await call(cluster, A, "retain") == {"u-0": 1, "u-1": 1}
            with pytest.raises(LabCommandError, match="retain: partition requires topic"):
                await call(cluster, A, "retain", partition=1)

    simulate(scenario, seed=2)


def test_a_leader_copies_and_expires_now_and_is_busy_until_it_has_copied() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 3)
        await call(cluster, A, "wait_idle")
        await call(cluster, A, "roll", topic="t", partition=0)
        assert await reasons(cluster, A) == ["t-0: segments to copy: 1"]
        expected = "wait_idle: not idle after 0.5 s: t-0: segments to copy: 1"
        with pytest.raises(LabCommandError, match=expected):
            await call(cluster, A, "wait_idle", seconds=0.5)
        copied = await call(cluster, A, "copy", topic="t", partition=0)
        assert copied["highest_offset_in_remote_storage"] == 2
        assert finished(cluster) == [(0, 2)]
        assert await reasons(cluster, A) == []
        assert await call(cluster, A, "retain") == {}
        assert (await call(cluster, A, "expire", topic="t", partition=0))["log_start_offset"] == 0
        await asyncio.sleep(100)
        assert (await call(cluster, A, "expire", topic="t", partition=0))["log_start_offset"] == 3
        await until(lambda: finished(cluster) == [])

    with_tier(scenario, configs=LARGE | {"retention.ms": "50000"}, **BY_HAND)


def test_work_in_the_tier_names_what_it_needs() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        leader = leader_of(cluster, "t")
        (follower,) = {A, B} - {leader}
        at: dict[str, Any] = {"topic": "t", "partition": 0}
        with pytest.raises(LabCommandError, match=f"copy: broker {leader} leads t-0"):
            await call(cluster, follower, "copy", **at)
        await create(client, "plain", replicas=2)
        with pytest.raises(LabCommandError, match="copy: plain-0 is not in the tier: plain has no "):
            await call(cluster, leader_of(cluster, "plain"), "copy", topic="plain", partition=0)
        with pytest.raises(LabCommandError, match="clean: the job clean of t-0 is not enabled"):
            await call(cluster, leader, "clean", **at)

    with_tier(scenario, brokers=2, replicas=2, configs=LARGE, **BY_HAND)


def test_a_partition_is_cleaned_in_the_tier_now_though_it_is_hardly_dirty() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write_keys(client, 6)
        await call(cluster, A, "roll", topic="t", partition=0)
        await call(cluster, A, "tiering", topic="t", partition=0)
        (copied,) = await call(cluster, A, "remote_segments", topic="t", partition=0)
        await call(cluster, A, "clean", topic="t", partition=0)
        segments = await call(cluster, A, "remote_segments", topic="t", partition=0)
        sizes = [one["size"] for one in segments if one["id"] != copied["id"]]
        assert len(sizes) == 1
        assert sizes[0] < copied["size"]

    configs = LARGE | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
    with_tier(scenario, configs=configs, remote_log_compaction_enable=True, **BY_HAND)


def test_a_leader_is_busy_until_its_followers_have_all_and_are_in_the_isr() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 2, overrides=QUICK | {"replica_lag_time_max_ms": 2000})
        async with cluster.client() as client:
            await create(client, replicas=2)
            leader = leader_of(cluster, "t")
            (follower,) = {A, B} - {leader}
            await call(cluster, leader, "wait_idle")
            held = (await call(cluster, leader, "hold", api="FETCH", node=follower))["rule"]
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(write(client, 1))
                await until(lambda: cluster.brokers[leader].partitions.get("t", 0).online_log.log_end_offset == 1)
                assert await reasons(cluster, leader) == [f"t-0: broker {follower} does not have all records"]
                await until(lambda: cluster.brokers[leader].partitions.get("t", 0).isr == (leader,))
            proposals = (await call_controller(cluster, "hold", api="ALTER_PARTITION"))["rule"]
            await call(cluster, leader, "release", rule=held)
            await call_controller(cluster, "wait", rule=proposals)
            assert await reasons(cluster, leader) == [
                "t-0: a change of the ISR is pending",
                f"t-0: broker {follower} is not in the ISR yet",
            ]
            await call_controller(cluster, "release", rule=proposals)
            await call(cluster, leader, "wait_idle")
            assert cluster.brokers[leader].partitions.get("t", 0).isr in ((A, B), (B, A))
            await cluster.kill(host_of(follower))
            await until(lambda: cluster.brokers[leader].image.brokers[follower].fenced)
            await write(client, 1, first=1)
            await call(cluster, leader, "wait_idle")

    simulate(scenario, seed=3)


async def call_controller(cluster: SimulatedCluster, command: str, **arguments: Any) -> Any:
    assert cluster.controller is not None
    return await cluster.controller.lab_commands.call(command, **arguments)


def test_a_follower_is_busy_until_it_fetches() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 3)
        await call(cluster, A, "roll", topic="t", partition=0)
        await call(cluster, A, "copy", topic="t", partition=0)
        await call(cluster, A, "fail", api="FETCH", topic="t", error="OFFSET_MOVED_TO_TIERED_STORAGE", count=1)
        held = (await call(cluster, A, "hold", api="LIST_OFFSETS", node=B))["rule"]
        await add_replica(client, A, B)
        await call(cluster, A, "wait", rule=held)
        assert "t-0: the follower is LocatingLocalStart" in await reasons(cluster, B)
        await call(cluster, A, "release", rule=held)
        await call(cluster, B, "wait_idle")
        await call(cluster, A, "wait_idle")
        assert (await call(cluster, A, "describe_partition", topic="t", partition=0))["isr"] == [A, B]

    with_tier(scenario, brokers=2, replicas=1, configs=LARGE, **BY_HAND)
