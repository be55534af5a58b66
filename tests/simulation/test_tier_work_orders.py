"""Leaders of a compacted topic in the tier let a worker on another machine clean it, and publish what it makes, whoever
leads meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of
from milena.runtime.context import Runtime
from milena.tiered.orders.order import MANIFEST, Order
from milena.tiered.store.local_tier import LocalTier
from milena.tiered.store.remote_storage import RemoteStorageError
from milena.tiered.store.staging import WORK, LocalStaging
from tests.fixtures.order_worker import OrderWorker
from tests.simulation.compacted_tier import CLEANING, COMPACTED, METADATA, is_clean, leader, read, write
from tests.simulation.steps import partition_image, until
from tests.simulation.tiered_topics import TIER, known_segments, with_tier

ORDERS = {
    **CLEANING,
    "remote_log_compaction_work_orders_enable": True,
    "remote_log_compaction_work_orders_timeout_ms": 20_000,
}


class Remote:
    """A worker on a machine of its own. ``slow``: seconds that it takes at most for an order, while the order may have
    become void; ``late``: orders whose manifest it writes after a long time, whatever has come of them."""

    def __init__(self, runtime: Runtime, chance: random.Random, slow: float) -> None:
        storage = LocalTier(runtime, TIER, "spark")
        self.runtime = runtime
        self.worker = OrderWorker(
            runtime.disk, storage, LocalStaging(runtime.tier_disk, runtime.disk, TIER, "spark"), "/spark"
        )
        self.carried_out: list[Order] = []
        self.void = 0
        self._chance = chance
        self._slow = slow

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.3)
            try:
                for order in await self.worker.orders():
                    await self._carry_out(order)
            except RemoteStorageError:
                self.void += 1  # it was taken back meanwhile

    async def _carry_out(self, order: Order) -> None:
        manifest = await self.worker.make(order)
        await asyncio.sleep(self._chance.uniform(0, self._slow))
        await self.worker.publish(order, manifest)
        self.carried_out.append(order)


@asynccontextmanager
async def working(cluster: SimulatedCluster, seed: int = 0, slow: float = 0.0) -> AsyncIterator[Remote]:
    remote = Remote(cluster.world.machine("spark").start(), random.Random(seed), slow)
    task = asyncio.ensure_future(remote.run())
    try:
        yield remote
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def staged(cluster: SimulatedCluster) -> list[str]:
    return [path for path in cluster.world.tier.files if path.startswith(f"{TIER}/{WORK}/")]


def test_consumers_find_the_last_values_that_a_worker_has_left() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        async with working(cluster) as remote:
            last = await write(client, 30, 4)
            await until(lambda: is_clean(cluster, 1, 100), 120)
            found = await read(client)
            assert {key: value for _, key, value in found} == last and len(found) < 120 / 2
            made = {one.id for one in remote.carried_out}
            assert made and known_segments(cluster, 1).cleaned_to == (0, remote.carried_out[-1].end)
            await until(lambda: not staged(cluster), 60)
        metrics = cluster.brokers[1].metrics
        assert metrics.value("kafka_server_brokertopicmetrics_remotecleanerrorspersec_total", topic="t") == 0

    with_tier(scenario, configs=COMPACTED, **ORDERS)


def test_without_a_worker_the_leader_cleans_when_the_time_is_over() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        last = await write(client, 30, 4)
        await until(lambda: bool(staged(cluster)), 30)
        await asyncio.sleep(10)
        assert known_segments(cluster, 1).cleaned_to is None
        await until(lambda: is_clean(cluster, 1, 100), 120)
        assert {key: value for _, key, value in await read(client)} == last

    with_tier(scenario, configs=COMPACTED, **ORDERS)


@pytest.mark.parametrize("seed", range(4))
def test_leaders_that_are_killed_and_paused_meanwhile_lose_nothing(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        chance = random.Random(seed)
        async with working(cluster, seed, slow=6.0) as remote:
            writing = asyncio.ensure_future(write(client, 50, 5, pause=1.0))
            epochs = set()
            while not writing.done():
                await asyncio.sleep(chance.uniform(2, 8))
                now = leader(cluster)
                if now not in cluster.brokers:
                    continue
                epochs.add(int(partition_image(cluster).leader_epoch))
                machine = cluster.world.machine(host_of(now))
                if chance.random() < 0.5:
                    await cluster.kill(host_of(now))
                    await asyncio.sleep(chance.uniform(0, 6))
                    await cluster.start_broker(now)
                else:
                    machine.pause()
                    await asyncio.sleep(chance.uniform(0, 8))
                    machine.resume()
            last = await writing
            await until(lambda: leader(cluster) in cluster.brokers and is_clean(cluster, leader(cluster), 200), 300)
            found = await read(client)
            assert {key: value for _, key, value in found} == last
            assert len(epochs) > 1 and len(found) < 150 and remote.carried_out

    with_tier(scenario, seed=seed, brokers=3, configs=COMPACTED, **ORDERS, **METADATA)


def test_a_paused_leader_publishes_nothing_of_its_order_when_another_leads() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        last = await write(client, 30, 4)
        await until(lambda: any(path.endswith("order.json") for path in staged(cluster)), 60)
        async with working(cluster) as remote:
            old = leader(cluster)
            machine = cluster.world.machine(host_of(old))
            machine.pause()
            await until(lambda: any(path.endswith(MANIFEST) for path in staged(cluster)), 30)
            first = remote.carried_out[0]
            await until(lambda: leader(cluster) != old, 60)
            machine.resume()
            await until(lambda: is_clean(cluster, leader(cluster), 100), 120)
            cache = known_segments(cluster, leader(cluster))
            authors = {int(one.cleaned[-1].epoch) for one in cache.segments() if one.cleaned}
            assert authors and min(authors) > first.leader_epoch
            assert cache.cleaned_to is not None and cache.cleaned_to.epoch > first.leader_epoch
            assert {key: value for _, key, value in await read(client)} == last

    with_tier(scenario, brokers=3, configs=COMPACTED, **ORDERS, **METADATA)
