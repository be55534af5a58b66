"""The final phase of groups: they work for a while without faults, then each of their coordinators is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from milena.client.cluster import Cluster
from milena.lab.chaos.groups.workload import GroupWorkload
from milena.lab.histories.groups import OFFSETS_TOPIC

CALM_SECONDS: Final = 5.0


async def work_without_faults(work: GroupWorkload) -> None:
    """Let the groups work again for ``CALM_SECONDS``, then fetch all their offsets."""
    work.stopping.clear()
    async with asyncio.TaskGroup() as working:
        for number, one in enumerate(work.all()):
            working.create_task(one, name=f"calm group client {number}")
        await asyncio.sleep(CALM_SECONDS)
        work.stopping.set()
    await work.look()


async def change_coordinators(
    client: Cluster,
    kill: Callable[[int], Awaitable[object]],
    start: Callable[[int], Awaitable[object]],
    look: Callable[[], Awaitable[object]],
) -> None:
    """Kill each broker that coordinates groups, one after the other, and ``look`` while it is down: committed offsets
    are then returned by another coordinator, which has only what was replicated. ``start`` starts a broker and returns
    when all replicas are in sync. At the end ``look`` once more."""
    topic = (await client.metadata([OFFSETS_TOPIC])).topics.get(OFFSETS_TOPIC)
    leaders = {} if topic is None else {partition.leader: None for partition in topic.partitions.values()}
    for broker in leaders:
        await kill(broker)
        await look()
        await start(broker)
    await look()
