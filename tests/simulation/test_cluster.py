"""A controller and two brokers on one seed: one history, whatever else is different."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cluster import start_cluster
from lab.world import World, simulate
from node.client import admin
from node.client.producer import Producer


async def a_history(world: World) -> str:
    """Topics, records, a killed broker, a power cut; the digest of all that was delivered."""
    cluster = await start_cluster(world, 2)
    async with cluster.client() as client:
        await admin.create_topics(client, [admin.NewTopic("t", 4, 1)])
        producer = Producer(client)
        futures = []
        for number in range(60):
            futures.append(await producer.enqueue("t", b"%d" % number, partition=number % 4))
            await asyncio.sleep(0.01)
            if number == 20:
                await cluster.kill("broker-2")
                await cluster.start_broker(2)
            if number == 40:
                await cluster.lose_power("controller")
                await cluster.start_controller()
        await producer.close()
        assert sorted(future.result().offset for future in futures) == sorted(n // 4 for n in range(60))
    for broker in cluster.brokers.values():
        await broker.stop()
    assert cluster.controller is not None
    await cluster.controller.stop()
    cluster.check_alive()
    return world.digest()


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    assert simulate(a_history, seed=seed) == simulate(a_history, seed=seed)


def test_another_seed_gives_another_history() -> None:
    assert simulate(a_history, seed=1) != simulate(a_history, seed=2)


def test_the_history_does_not_depend_on_the_order_of_sets() -> None:
    """Two processes with different hash seeds."""
    script = (
        "from lab.world import simulate\nfrom tests.simulation.test_cluster import a_history\n"
        "print(simulate(a_history, seed=7))"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path.cwd())}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        digests.add(done.stdout.split()[-1])
    assert len(digests) == 1
