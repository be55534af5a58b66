"""The lab commands of simulated nodes: rules for requests, and descriptions of the state of a node."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from milena.client import admin
from milena.lab.cluster import SimulatedCluster, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.serving.lab_commands import LabCommandError
from tests.simulation.steps import QUICK, create, write


def test_a_held_produce_waits_and_is_written_on_release() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world)
        lab_commands = cluster.brokers[1].lab_commands
        async with cluster.client() as client, asyncio.TaskGroup() as tasks:
            await create(client)
            await write(client, 2)
            rule = (await lab_commands.call("hold", api="PRODUCE", topic="t"))["rule"]
            writing = tasks.create_task(write(client, 1, first=2))
            await lab_commands.call("wait", rule=rule)
            assert (await lab_commands.call("describe_partition", topic="t", partition=0))["log_end_offset"] == 2
            await lab_commands.call("release", rule=rule)
            await writing
            described = await lab_commands.call("describe_partition", topic="t", partition=0)
            assert {key: described[key] for key in ("role", "leader", "isr", "log_end_offset", "epochs")} == {
                "role": "leader",
                "leader": 1,
                "isr": [1],
                "log_end_offset": 3,
                "epochs": [[0, 0]],
            }
            found = await lab_commands.call("read_log", topic="t", partition=0, **{"from": 1, "max": 5})
            assert [(offset, value.strip(), epoch) for offset, value, epoch in found] == [(1, "1", 0), (2, "2", 0)]
            assert await lab_commands.call("roll", topic="t", partition=0) == {"base_offset": 3}

    simulate(scenario, seed=1)


def test_rules_of_the_controller_match_forwarded_requests() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world)
        assert cluster.controller is not None
        lab_commands = cluster.controller.lab_commands
        async with cluster.client() as client, asyncio.TaskGroup() as tasks:
            rule = (await lab_commands.call("hold", api="CREATE_TOPICS", topic="late"))["rule"]
            await create(client, "soon")
            creating = tasks.create_task(admin.create_topics(client, [admin.NewTopic("late", 1, 1)]))
            await lab_commands.call("wait", rule=rule)
            assert set(await lab_commands.call("partitions")) == {"soon-0"}
            await lab_commands.call("release", rule=rule)
            assert await creating == {"late": None}
            assert (await lab_commands.call("partitions", topic="late"))["late-0"]["leader"] == 1

    simulate(scenario, seed=2)


def test_held_requests_of_a_broker_do_not_delay_its_heartbeats() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, overrides=QUICK)
        assert cluster.controller is not None
        lab_commands = cluster.controller.lab_commands
        async with cluster.client() as client, asyncio.TaskGroup() as tasks:
            rule = (await lab_commands.call("hold", api="ENVELOPE", peer=1))["rule"]
            creating = tasks.create_task(admin.create_topics(client, [admin.NewTopic("t", 1, 1)]))
            await lab_commands.call("wait", rule=rule)
            creating.cancel()
            await asyncio.sleep(10)
            assert (await lab_commands.call("brokers"))["1"]["fenced"] is False

    simulate(scenario, seed=3)


def test_dropped_heartbeats_fence_a_broker() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, brokers=2, overrides=QUICK)
        assert cluster.controller is not None
        lab_commands = cluster.controller.lab_commands
        rule = (await lab_commands.call("drop", api="BROKER_HEARTBEAT", peer=2))["rule"]
        await _fenced(cluster, {1: False, 2: True})
        assert (await lab_commands.call("rules"))[0]["hits"] >= 1
        await lab_commands.call("release", rule=rule)
        await _fenced(cluster, {1: False, 2: False})

    simulate(scenario, seed=4)


def test_held_fetches_of_a_follower_hold_the_high_watermark_back() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, brokers=3)
        async with cluster.client() as client, asyncio.TaskGroup() as tasks:
            await create(client, replicas=3)
            await write(client, 1)
            shown = await cluster.brokers[1].lab_commands.call("describe_partition", topic="t", partition=0)
            leader = shown["leader"]
            slow, quick = (number for number in cluster.brokers if number != leader)
            lab_commands = cluster.brokers[leader].lab_commands
            rule = (await lab_commands.call("hold", api="FETCH", peer=slow))["rule"]
            await lab_commands.call("wait", rule=rule)
            writing = tasks.create_task(write(client, 1, first=1))
            await asyncio.sleep(1)
            shown = await lab_commands.call("describe_partition", topic="t", partition=0)
            assert (shown["role"], shown["log_end_offset"], shown["high_watermark"]) == ("leader", 2, 1)
            assert {int(node): state["log_end_offset"] for node, state in shown["replicas"].items()} == {
                quick: 2,
                slow: 1,
            }
            shown = await cluster.brokers[slow].lab_commands.call("describe_partition", topic="t", partition=0)
            assert (shown["role"], shown["leader"], shown["log_end_offset"], shown["fetcher"]["leader"]) == (
                "follower",
                leader,
                1,
                leader,
            )
            await lab_commands.call("release", rule=rule)
            await writing
            assert (await lab_commands.call("describe_partition", topic="t", partition=0))["high_watermark"] == 2

    simulate(scenario, seed=7)


def test_images_are_equal_at_equal_offsets() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, brokers=2)
        assert cluster.controller is not None
        async with cluster.client() as client:
            await create(client, partitions=3)
        nodes: list[Any] = [cluster.controller, *cluster.brokers.values()]
        async with asyncio.timeout(10):
            while len({_ordered(await node.lab_commands.call("image")) for node in nodes}) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    simulate(scenario, seed=5)


def test_an_unknown_partition_is_reported_as_a_sentence() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world)
        with pytest.raises(LabCommandError, match="describe_partition: UNKNOWN_TOPIC_OR_PARTITION"):
            await cluster.brokers[1].lab_commands.call("describe_partition", topic="none", partition=0)

    simulate(scenario, seed=6)


def _ordered(values: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(values.items()))


async def _fenced(cluster: SimulatedCluster, wanted: dict[int, bool]) -> None:
    assert cluster.controller is not None
    async with asyncio.timeout(30):
        brokers = partial(cluster.controller.lab_commands.call, "brokers")
        while {int(n): b["fenced"] for n, b in (await brokers()).items()} != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
