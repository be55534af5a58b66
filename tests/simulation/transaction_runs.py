"""Runs of the workload with transactions alone, in a simulated cluster whose brokers are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from milena.client import admin
from milena.client.cluster import Cluster
from milena.lab.chaos.ending import Ending
from milena.lab.chaos.journal import TracedJournal
from milena.lab.chaos.own_clients import Habits, OwnClients
from milena.lab.chaos.simulated.place import SimulatedPlace
from milena.lab.chaos.simulated.seeds import OF_SEEDS, TRANSACTIONAL
from milena.lab.chaos.topics import REPLICAS
from milena.lab.chaos.transactions.ending import TransactionEnding
from milena.lab.chaos.transactions.workload import TransactionWorkload
from milena.lab.histories.events import Event
from milena.lab.world.trace import Trace
from milena.lab.world.world import World, simulate
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import KafkaError
from milena.runtime.randomness import Randomness

SECONDS: Final = 30.0
PACE: Final = 0.2
CALM: Final = 4.0
"""The most seconds before the next broker is killed."""
DOWN: Final = 5.0
"""The most seconds for which a broker is down, and for which a dead broker keeps its partitions."""
CUT_OFF: Final = 2.0
"""The most seconds for which a broker cannot reach the others before it is killed."""
SETTLED: Final = 12.0
LONGEST_RUN: Final = 600.0


def history_of(seed: int, *, kills: bool = True, seconds: float = SECONDS) -> list[Event]:
    """Return the history of a run. One broker at a time is killed, at random times, with ``kills``."""

    async def run(world: World) -> list[Event]:
        place = SimulatedPlace(world, 3, OF_SEEDS, habits=Habits(request_timeout=2.0, batch_bytes=2000))
        await place.open()
        async with asyncio.timeout(LONGEST_RUN):
            return await _work(place, Randomness(seed), seconds, kills=kills)

    return simulate(run, seed=seed)


async def _work(place: SimulatedPlace, random: Randomness, seconds: float, *, kills: bool) -> list[Event]:
    clients = OwnClients(place.runtime, place.bootstrap)
    client, clock = clients.cluster(), place.runtime.clock
    await _create(client)
    journal = TracedJournal(clock, Trace())
    workload = TransactionWorkload(clients, TRANSACTIONAL, journal, clock, random, PACE)
    async with asyncio.TaskGroup() as reading:
        for reader in workload.readers():
            reading.create_task(reader)
        async with asyncio.TaskGroup() as working:
            for one in workload.all():
                working.create_task(one)
            await _kill(place, random, clock.monotonic() + seconds, kills=kills)
            workload.stopping.set()
        await clock.sleep(SETTLED)
        await workload.finish()
        places = [partition for topic in TRANSACTIONAL for partition in topic.places]
        ending = TransactionEnding(client, Ending(client, journal), journal)
        await ending.note(places, [workload.group], TRANSACTIONAL[0].name)
        workload.read.set()
    client.close()
    await place.stop()
    return journal.events


async def _create(client: Cluster) -> None:
    topics = [admin.NewTopic(one.name, one.partitions, REPLICAS, configs=one.config) for one in TRANSACTIONAL]
    left: Sequence[str] = [one.name for one in topics]
    while left:
        with suppress(KafkaError, ChannelError):
            results = await admin.create_topics(client, [one for one in topics if one.name in left])
            left = [name for name in left if results[name] is not None]
        await client.runtime.clock.sleep(0.5)


async def _cut_off(place: SimulatedPlace, broker: int) -> None:
    for other in place.brokers:
        if other != broker:
            await place.cut(broker, other)
            await place.cut(other, broker)


async def _kill(place: SimulatedPlace, random: Randomness, until: float, *, kills: bool) -> None:
    clock = place.runtime.clock
    while clock.monotonic() < until:
        await clock.sleep(random.uniform(0, CALM))
        if kills:
            broker = random.choice(place.brokers)
            if random.below(2):
                await _cut_off(place, broker)
                await clock.sleep(random.uniform(0, CUT_OFF))
            await place.kill(broker)
            await place.heal_links()
            await clock.sleep(random.uniform(0, DOWN))
            await place.start(broker)
