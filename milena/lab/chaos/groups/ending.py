"""The final phase of groups: they work for a while without faults, then their coordinators are changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from milena.client.cluster import Cluster, ClusterView
from milena.lab.chaos.groups.workload import GroupWorkload
from milena.lab.cluster import SimulatedCluster, host_of
from milena.lab.histories.events import Event
from milena.lab.histories.group_events import Settled
from milena.lab.histories.groups import OFFSETS_TOPIC
from milena.lab.world.trace import Trace

CALM_SECONDS: Final = 5.0
LAST_ANSWERS: Final = 2.0
"""Seconds after which requests in flight have arrived, and brokers know the leaders."""


async def end_groups(
    cluster: SimulatedCluster,
    client: Cluster,
    work: GroupWorkload,
    note: Callable[[Event], object],
    trace: Trace,
    healthy: Callable[[], Awaitable[ClusterView]],
) -> None:
    """Check that coordinators return the same state before and after each is killed. ``healthy`` waits for the
    cluster."""
    await healthy()
    await asyncio.sleep(LAST_ANSWERS)
    note(Settled(client.runtime.clock.monotonic()))
    trace.note("group clients work without faults")
    work.stopping.clear()
    async with asyncio.TaskGroup() as working:
        for number, one in enumerate(work.all()):
            working.create_task(one, name=f"calm group client {number}")
        await asyncio.sleep(CALM_SECONDS)
        work.stopping.set()
    await work.look()
    topic = (await client.metadata([OFFSETS_TOPIC])).topics.get(OFFSETS_TOPIC)
    leaders = {} if topic is None else {partition.leader: None for partition in topic.partitions.values()}
    for broker in leaders:
        trace.note(f"group coordinator {host_of(broker)} is terminated")
        await cluster.kill(host_of(broker))
        await work.look()
        await cluster.start_broker(broker)
        await healthy()
    await work.look()
