"""One run of chaos: work, faults, the end, and the verdict on the history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from milena.client import admin
from milena.client.cluster import Cluster
from milena.command_line.errors import UserError
from milena.lab.chaos.ending import Ending
from milena.lab.chaos.faults import SLACK, Kind, Shape
from milena.lab.chaos.groups.ending import change_coordinators, work_without_faults
from milena.lab.chaos.groups.workload import GroupWorkload
from milena.lab.chaos.health import Health, NotHealthy
from milena.lab.chaos.holes import excuses
from milena.lab.chaos.journal import HISTORY, Journal
from milena.lab.chaos.machine import Detector, Machine
from milena.lab.chaos.moves import Moves
from milena.lab.chaos.nemesis import IN_SYNC, Nemesis
from milena.lab.chaos.own_clients import OwnClients
from milena.lab.chaos.place import Place
from milena.lab.chaos.plan import Round, plan
from milena.lab.chaos.topics import CLUSTER, PLAIN, REPLICAS, Topic, chosen
from milena.lab.chaos.unclean import Unclean
from milena.lab.chaos.verdict import Verdict, judge
from milena.lab.chaos.work.readers import Readers
from milena.lab.chaos.work.workload import Workload
from milena.lab.chaos.writable import recovers
from milena.lab.histories.events import ACKS_ALL
from milena.lab.histories.group_events import Settled, Trouble
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.randomness import Randomness

CALM: Final = 3.0
"""Seconds of work after the last fault, and before the first one."""
READING: Final = 180.0
"""Seconds in which readers must reach the end, everything must be read, and all groups asked, of the shortest run."""
LONGER: Final = 0.25
"""Seconds that each second of faults adds to that: it makes records, segments of the tier, and groups."""
CREATING: Final = 60.0
ANSWERED: Final = 12.0
"""Seconds after the rebalance time-out in which a coordinator without a fault answers: more than replicas take to leave
the ISR."""
RENAMING: Final = 120.0
"""Seconds after which the workload of groups uses other groups."""
ABOUT: Final = "run.json"
PLAN: Final = "plan.txt"
"""A round a line: equal for equal orders."""
PACE: Final = 0.1
"""Suits processes of one machine."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to run. ``kinds``: None for all kinds of the place. ``pace``: seconds between two records of a partition and
    a library. ``unsafe``: add unclean elections, and judge acks=1 as a promise."""

    seed: int
    seconds: float
    kinds: Collection[Kind] | None = None
    unsafe: bool = False
    pace: float = PACE


def kinds_of(order: Order, place: Place) -> list[Kind]:
    """Return the kinds of faults of a run: those of the order, or all kinds of the place except lost objects. Raise
    UserError if the place does not have a kind of the order."""
    if order.kinds is not None:
        missing = [kind.value for kind in order.kinds if kind not in place.kinds]
        if missing:
            raise UserError(f"{', '.join(missing)}: not on {place.name}")
        return [kind for kind in Kind if kind in order.kinds]
    return [kind for kind in Kind if kind in place.kinds and kind is not Kind.LOST_OBJECTS]


def reading_of(order: Order) -> float:
    """Return the seconds for each step of the end."""
    return READING + LONGER * order.seconds


def shape_of(place: Place) -> Shape:
    return Shape(place.brokers, place.controller, place.session, place.lag, place.odd_answers)


def rounds_of(order: Order, place: Place) -> list[Round]:
    """Return the plan, which depends on the order and the place only."""
    return plan(order.seed, order.seconds, kinds_of(order, place), shape_of(place), unsafe=order.unsafe)


class NotJudged(Exception):
    """The run did not reach its end while the machine stalled for ``seconds``. The history until then can be judged."""

    def __init__(self, seconds: float, reason: BaseException) -> None:
        super().__init__(f"not judged: the machine stalled for {seconds:.1f} s ({reason or type(reason).__name__})")
        self.seconds = seconds


def about(order: Order, place: Place, header: Mapping[str, object]) -> dict[str, object]:
    """Return what a reader of a report should know of the run, as JSON."""
    return {
        **header,
        "place": place.name,
        "seed": order.seed,
        "seconds": order.seconds,
        "unsafe": order.unsafe,
        "pace": order.pace,
        "faults": [kind.value for kind in kinds_of(order, place)],
        "clients": [library.name for library in place.clients],
        "topics": {topic.name: dict(topic.config) for topic in topics_of(order, place)},
        "brokers": len(place.brokers),
        "settings": dict(CLUSTER),
    }


def topics_of(order: Order, place: Place) -> list[Topic]:
    """Return the topics of a run. A run that loses objects of the tier has no compacted tiered topic, because it is
    unknown which keys a lost object had."""
    found = chosen(place.topics, unsafe=order.unsafe)
    loses = Kind.LOST_OBJECTS in kinds_of(order, place)
    return [topic for topic in found if not (loses and topic.keyed and topic.is_tiered)]


async def run(
    order: Order,
    place: Place,
    folder: Path,
    tell: Callable[[str], object] = lambda _: None,
    header: Mapping[str, object] = MappingProxyType({}),
    *,
    measured: bool = False,
) -> Verdict:
    """Run and judge. ``tell`` gets a line for each fault. ``header``: facts for the report. ``measured``: stalls of the
    machine are measured, and liveness is not judged during them.

    Raise NotHealthy, TimeoutError and what the place raises if the run cannot be completed, or NotJudged in place of
    the first two if the machine stalled; the history until then is in the folder in any case."""
    journal = Journal(folder, place.runtime.clock, tell)
    topics = topics_of(order, place)
    write_about(folder, order, place, header)
    shape = shape_of(place)
    machine = Machine(Detector(shape.session, recovers(shape), SLACK), journal)
    try:
        async with _watched(machine) if measured else nullcontext():
            await _run(order, place, journal, topics, machine if measured else None)
    except BaseException as error:
        journal.say(f"the run has failed: {type(error).__name__}: {error}")
        journal.note(Trouble("", 0.0, journal.now()))
        if (excused := machine.excuses(journal.now())) and (reason := _unhealthy(error)) is not None:
            raise NotJudged(excused, reason) from error
        raise
    finally:
        journal.close()
    return judge(folder / HISTORY, topics, unsafe=order.unsafe, libraries=place.clients)


@asynccontextmanager
async def _watched(machine: Machine) -> AsyncIterator[None]:
    watching = asyncio.create_task(machine.watch_timers())
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching  # raises what ended it early: stalls were not measured then


def _unhealthy(error: BaseException) -> BaseException | None:
    """Return the lack of progress that an error consists of; None if it has any other cause."""
    if isinstance(error, BaseExceptionGroup):
        leaves = [_unhealthy(one) for one in error.exceptions]
        return leaves[0] if all(leaf is not None for leaf in leaves) else None
    return error if isinstance(error, NotHealthy | TimeoutError) else None


def write_about(folder: Path, order: Order, place: Place, header: Mapping[str, object]) -> None:
    (folder / ABOUT).write_text(json.dumps(about(order, place, header), indent=2) + "\n")
    text = "".join(f"{one}\n" for one in rounds_of(order, place))
    (folder / PLAN).write_text(text)


async def _run(order: Order, place: Place, journal: Journal, topics: Sequence[Topic], machine: Machine | None) -> None:
    random = Randomness(order.seed)
    clock = place.runtime.clock
    client = OwnClients(place.runtime, place.bootstrap).cluster("nemesis")
    health = Health(client, place.brokers, place.bootstrap, topics)
    await _create(client, health, journal, topics)
    kinds = kinds_of(order, place)
    workload = Workload(place.clients, topics, journal, clock, random, pace=order.pace, kinds=kinds)
    places = [partition for topic in topics for partition in topic.places]
    strong = [partition for topic in topics if topic.acks == ACKS_ALL for partition in topic.places]
    moves = Moves(client, health, journal, random, place.brokers, places)
    own = OwnClients(place.runtime, place.bootstrap).cluster("groups")
    groups = GroupWorkload(
        own,
        journal.note,
        journal.now,
        Randomness(order.seed),
        PLAIN.places,
        patience=ANSWERED,
        longest=RENAMING,
    )
    nemesis = Nemesis(place, health, journal, shape_of(place), Unclean(place, health, journal, moves), strong)
    rounds, reading = rounds_of(order, place), reading_of(order)
    ending = Ending(client, journal)

    async def look() -> None:
        """Fetch all committed offsets of all groups."""
        async with asyncio.timeout(reading):
            await groups.look()
            await ending.commits(workload.groups, PLAIN.places)

    async with asyncio.TaskGroup() as tails:
        if machine is not None:
            sessions = tails.create_task(machine.watch_sessions(health, place.brokers, nemesis.explains))
        following = [tails.create_task(tail) for tail in workload.tails()]
        async with asyncio.TaskGroup() as working:
            for number, work in enumerate([*workload.work(), *groups.all()]):
                working.create_task(work, name=f"chaos client {number}")
            await clock.sleep(CALM)
            await nemesis.trouble(rounds, clock.monotonic() + order.seconds)
            await clock.sleep(CALM)
            workload.stopping.set()
            groups.stopping.set()
        journal.say("all writers have ended")
        await health.in_sync(IN_SYNC)
        if machine is not None:
            sessions.cancel()
        journal.note(Settled(journal.now()))
        async with asyncio.timeout(reading):
            await work_without_faults(groups)
            paths = await place.lost_objects()
            lost = await ending.answer(lambda: excuses(client, paths))
            workload.finish(await ending.logs(workload.logs, lost))
            await ending.copies(workload.keyed)
            await _read_keys(workload, reading)
            await ending.topics()
        await asyncio.wait(following, timeout=reading)
        if behind := workload.behind():
            raise NotHealthy(f"{reading:.0f} seconds after the last write: {'; '.join(behind)}")
        await _change_coordinators(place, client, health, journal, look)
    for cluster in (client, own):
        cluster.close()


async def _change_coordinators(
    place: Place, client: Cluster, health: Health, journal: Journal, look: Callable[[], Awaitable[object]]
) -> None:
    """Raise NotHealthy and what ``look`` raises."""

    async def kill(broker: int) -> None:
        journal.say(f"coordinator {broker} is killed")
        await place.kill(broker)

    async def start(broker: int) -> None:
        await place.start(broker)
        await health.in_sync(IN_SYNC)

    await change_coordinators(client, kill, start, look)


async def _create(client: Cluster, health: Health, journal: Journal, topics: Sequence[Topic]) -> None:
    """Create the topics. Requests that fail are repeated, because the cluster has just started. Raise TimeoutError."""
    await health.in_sync(CREATING)
    left = {
        topic.name: admin.NewTopic(topic.name, topic.partitions, REPLICAS, configs=topic.config) for topic in topics
    }
    async with asyncio.timeout(CREATING):
        while left:
            try:
                results = await admin.create_topics(client, list(left.values()))
            except (ChannelError, KafkaError) as error:
                journal.say(f"topics are not made: {error}")
                results = {}
            for name, refusal in results.items():
                if refusal is None or refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    del left[name]
                else:
                    journal.say(f"{name} is not made: {refusal.code.name}: {refusal}")
            if left:
                await client.runtime.clock.sleep(1.0)
    await health.in_sync(CREATING)


async def _read_keys(workload: Workload, seconds: float) -> None:
    """Let all readers read all compacted partitions at once, since some need long to start. Raise NotHealthy."""

    async def read(reader: Readers) -> None:
        for place in workload.keyed:
            if not await reader.read_everything(place, final=True, seconds=seconds):
                raise NotHealthy(f"{place[0]}-{place[1]} was not read to its end by {reader.name}")

    async with asyncio.TaskGroup() as reading:
        for reader in workload.readers:
            reading.create_task(read(reader))
