"""For which records the guarantees end with a power loss, and for which they do not."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.histories.checker import Anomaly, check
from milena.lab.histories.events import Event, RequestOutcome, Send, Void
from milena.lab.world.world import World, simulate
from tests.simulation.final_logs import final_log
from tests.simulation.steps import QUICK, create, until, write

T0 = ("t", 0)
SYNCED, MORE = 5, 3


async def lose_power(cluster: SimulatedCluster, *, sync_all: bool) -> list[Void]:
    """Cut the power of the only broker, which has synced its first records, or all of them."""
    async with cluster.client() as client:
        await create(client, replicas=1)
        log = cluster.brokers[1].partitions.get(*T0).online_log
        await write(client, SYNCED)
        log.flush()
        await write(client, MORE, first=SYNCED)
        if sync_all:
            log.flush()
        await cluster.lose_power(host_of(1))
        await asyncio.sleep(0.1)
        await cluster.start_broker(1)
        await until(lambda: cluster.brokers[1].partitions.get(*T0).is_leader, 30)
    assert cluster.watch is not None
    cluster.watch.check_all()
    return [one for one in cluster.watch.voids if one.partition == T0]


def test_a_power_loss_ends_the_guarantees_only_for_records_that_were_not_synced() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK, watched=True)
        (void,) = await lose_power(cluster, sync_all=False)
        assert SYNCED <= void.kept < SYNCED + MORE
        async with cluster.client() as client:
            log = await final_log(client, T0)
        assert len(log.records) == void.kept
        sends: list[Event] = [
            Send(T0, value, 0.0, 0.1, RequestOutcome.OK, offset, lane="p") for offset, value, _ in log.records
        ]
        assert check([*sends, void, log]) == []
        found = check([*sends, void, replace(log, records=())])
        assert [one.anomaly for one in found] == [Anomaly.LOST_WRITE] * void.kept

    simulate(scenario, seed=2)


def test_if_all_was_synced_no_guarantee_ends_but_an_election_may_be_needed() -> None:
    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 1, QUICK, watched=True)
        assert await lose_power(cluster, sync_all=True) == []
        assert cluster.watch is not None
        assert T0 in cluster.watch.shaken

    simulate(scenario, seed=2)
