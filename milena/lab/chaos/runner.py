"""One run of chaos: work, faults, the end, and the verdict on the history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from milena.client import admin
from milena.client.cluster import Cluster
from milena.command_line.errors import UserError
from milena.lab.chaos.changes import MADE
from milena.lab.chaos.clients import TransactingClients
from milena.lab.chaos.ending import Ending, FindHole
from milena.lab.chaos.faults import SLACK, Kind, Shape
from milena.lab.chaos.groups.ending import change_coordinators, work_without_faults
from milena.lab.chaos.groups.workload import GroupWorkload
from milena.lab.chaos.health import Health, NotHealthy
from milena.lab.chaos.holes import Hole, excuses, hole_at
from milena.lab.chaos.journal import HISTORY, FileJournal, Journal
from milena.lab.chaos.load import Load
from milena.lab.chaos.machine import Detector, Machine
from milena.lab.chaos.moves import Moves
from milena.lab.chaos.nemesis import IN_SYNC, Nemesis
from milena.lab.chaos.observer import Observer
from milena.lab.chaos.own_clients import OwnClients
from milena.lab.chaos.place import Place
from milena.lab.chaos.plan import Round, overlapping, plan
from milena.lab.chaos.topics import CLUSTER, PLAIN, REPLICAS, SOURCE, TARGET, Topic, chosen
from milena.lab.chaos.transactions.ending import TransactionEnding
from milena.lab.chaos.transactions.workload import TransactionWorkload
from milena.lab.chaos.unclean import Unclean
from milena.lab.chaos.verdict import Verdict, judge
from milena.lab.chaos.work.config_changes import PASSING, ConfigChanges
from milena.lab.chaos.work.readers import Readers
from milena.lab.chaos.work.workload import Workload
from milena.lab.chaos.writable import recovers
from milena.lab.histories.events import ACKS_ALL
from milena.lab.histories.group_events import Settled, Trouble
from milena.lab.invariants.tiers import Freed
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import TopicPartition
from milena.runtime.randomness import Randomness

CALM: Final = 3.0
"""Seconds of work after the last fault, and before the first one."""
READING: Final = 180.0
"""Seconds in which readers must reach the end, everything must be read, and all groups asked, of the shortest run."""
LONGER: Final = 0.25
"""Seconds that each second of faults adds to that: it makes records, segments of the tier, and groups."""
LAST_ANSWERS: Final = 2.0
"""Seconds after which requests in flight have arrived, and brokers know the leaders."""
CREATING: Final = 60.0
ASKING: Final = 0.5
"""Seconds between two looks at the brokers' metadata."""
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
    a library. ``unsafe``: add unclean elections, and judge acks=1 as a promise. ``faults``: the number of faults in
    each stream of an overlapping plan; None: a plan of rounds, for ``seconds``. ``deletions``: as in ``Load``.
    ``transactions``: clients also work with transactions."""

    seed: int
    seconds: float
    kinds: Collection[Kind] | None = None
    unsafe: bool = False
    pace: float = PACE
    faults: int | None = None
    deletions: bool = False
    transactions: bool = False


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
    watched = place.insight is not None
    return Shape(place.brokers, place.controller, place.session, place.lag, place.odd_answers, watched)


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
        "deletions": order.deletions,
        "transactions": order.transactions,
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


def load_of(order: Order, place: Place) -> Load:
    """Return the load of a run of rounds."""
    topics = topics_of(order, place)
    return Load(
        topics=topics,
        transactional=(SOURCE, TARGET) if order.transactions else (),
        shared=PLAIN,
        pace=order.pace,
        read_again=[partition for topic in topics if not topic.keyed for partition in topic.places],
        committed=PLAIN.places,
        patience=ANSWERED,
        deletions=order.deletions,
        renaming=RENAMING,
    )


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
    journal = FileJournal(folder, place.runtime.clock, tell)
    load = load_of(order, place)
    write_about(folder, order, place, header)
    shape = shape_of(place)
    machine = Machine(Detector(shape.session, recovers(shape), SLACK), journal)
    try:
        async with _watched(machine) if measured else nullcontext():
            await work(order, place, load, journal, machine if measured else None)
    except BaseException as error:
        journal.say(f"the run has failed: {type(error).__name__}: {error}")
        journal.note(Trouble("", 0.0, journal.now()))
        if (excused := machine.excuses(journal.now())) and (reason := _unhealthy(error)) is not None:
            raise NotJudged(excused, reason) from error
        raise
    finally:
        journal.close()
    return judge(folder / HISTORY, load.topics, unsafe=order.unsafe, libraries=place.clients)


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


async def work(order: Order, place: Place, load: Load, journal: Journal, machine: Machine | None = None) -> None:
    """Create the topics, let clients work while faults are injected, and note the final state. Raise NotHealthy,
    TimeoutError, and what the place and its insight raise."""
    client, of_groups = (OwnClients(place.runtime, place.bootstrap).cluster(name) for name in ("nemesis", "groups"))
    health = Health(client, place.brokers, place.bootstrap, load.all_topics, place.insight)
    await _create(client, health, journal, load.all_topics)
    await Run(order, place, load, journal, client, of_groups, health).play(machine)
    for cluster in (client, of_groups):
        cluster.close()


class Run:
    """One run of a cluster whose topics exist."""

    def __init__(
        self,
        order: Order,
        place: Place,
        load: Load,
        journal: Journal,
        client: Cluster,
        of_groups: Cluster,
        health: Health,
    ) -> None:
        """``of_groups``: the client of the groups that commit by requests of their own."""
        random, clock = Randomness(order.seed), place.runtime.clock
        kinds = kinds_of(order, place)
        places = [partition for topic in load.topics for partition in topic.places]
        strong = [partition for topic in load.topics if topic.acks == ACKS_ALL for partition in topic.places]
        self._order = order
        self._place = place
        self._load = load
        self._journal = journal
        self._client = client
        self._health = health
        self._clock = clock
        self._reading = reading_of(order)
        self._ending = Ending(client, journal)
        self._workload = Workload(place.clients, load, journal, clock, random, kinds=kinds)
        self._moves = Moves(client, health, journal, random, place.brokers, places)
        self._groups = GroupWorkload(
            of_groups,
            journal.note,
            journal.now,
            Randomness(order.seed),
            load.committed,
            expires=load.expires,
            patience=load.patience,
            longest=load.renaming,
        )
        self._transactions = [
            TransactionWorkload(library, load.transactional, journal, clock, random, load.pace)
            for library in place.clients
            if load.transactional and isinstance(library, TransactingClients)
        ]
        unclean = Unclean(place, health, journal, self._moves)
        rounds = order.faults is None
        self._nemesis = Nemesis(place, health, journal, shape_of(place), unclean, strong, observed=rounds)
        self._changes: ConfigChanges | None = None
        if load.deletions:
            freed = Freed() if place.insight is None else place.insight.freed
            stopping = self._workload.stopping
            self._changes = ConfigChanges(client, load.topics, freed, journal, random, stopping)

    async def play(self, machine: Machine | None) -> None:
        workload, journal = self._workload, self._journal
        async with asyncio.TaskGroup() as tails:
            looking = None if self._place.insight else tails.create_task(self._look_at_brokers(machine))
            following = [tails.create_task(tail) for tail in workload.tails()]
            for transactions in self._transactions:
                for reader in transactions.readers():
                    tails.create_task(reader)
            async with asyncio.TaskGroup() as working:
                for number, one in enumerate(self._work()):
                    working.create_task(one, name=f"chaos client {number}")
                await self._inject_faults()
                await self._clock.sleep(CALM)
                workload.stopping.set()
                self._groups.stopping.set()
                for transactions in self._transactions:
                    transactions.stopping.set()
            journal.say("all writers have ended")
            await self._health.in_sync(IN_SYNC)
            if looking is not None:
                looking.cancel()
            await self._clock.sleep(LAST_ANSWERS)
            journal.note(Settled(journal.now()))
            await self._end()
            await asyncio.wait(following, timeout=self._reading)
            if behind := workload.behind():
                raise NotHealthy(f"{self._reading:.0f} seconds after the last write: {'; '.join(behind)}")
            if self._load.groups:
                await _change_coordinators(self._place, self._client, self._health, journal, self._look)
            else:
                await self._look()

    async def _look_at_brokers(self, machine: Machine | None) -> None:
        """Note leaders, ISRs and registrations as they change, until it is cancelled."""
        observer, brokers = Observer(self._journal.see, self._journal.now), self._place.brokers
        while True:
            views = await self._health.views(ASKING)
            observer.views(views, brokers)
            if machine is not None:
                explained = [broker for broker in brokers if self._nemesis.explains(broker)]
                machine.look_at_sessions([view for view in views if view is not None], brokers, explained)
            await self._clock.sleep(ASKING)

    def _work(self) -> Sequence[Coroutine[object, object, None]]:
        load, stopping = self._load, self._workload.stopping
        found = self._workload.work()
        if load.groups:
            found += self._groups.all()
        for transactions in self._transactions:
            found += transactions.all()
        if load.moves:
            found.append(self._moves.wander(REPLICAS, stopping))
        if self._changes is not None:
            found += self._changes.all(load.made_replicas)
        return found

    async def _inject_faults(self) -> None:
        order, place = self._order, self._place
        if order.faults is None:
            await self._clock.sleep(CALM)
            await self._nemesis.run_rounds(rounds_of(order, place), self._clock.monotonic() + order.seconds)
        else:
            await self._nemesis.run_streams(
                overlapping(order.seed, order.faults, kinds_of(order, place), shape_of(place))
            )

    async def _end(self) -> None:
        """Note the final state: logs, keys and topics. Readers can then reach the ends."""
        place, workload = self._place, self._workload
        async with asyncio.timeout(self._reading):
            if self._load.groups:
                await work_without_faults(self._groups)
            if self._changes is not None:
                await self._changes.settle()
            await self._end_transactions()
            if place.insight is not None:
                await place.insight.copied(self._reading)
            workload.finish(await self._ending.logs(workload.logs, await self._holes()))
            await self._ending.copies(workload.keyed)
            await _read_keys(workload, self._reading)
            await self._ending.topics((MADE, PASSING))

    async def _end_transactions(self) -> None:
        for one in self._transactions:
            await one.finish()
        places = [place for topic in self._load.transactional for place in topic.places]
        groups = [one.group for one in self._transactions]
        if groups:
            await TransactionEnding(self._client, self._ending, self._journal).note(places, groups, SOURCE.name)
        for one in self._transactions:
            one.read.set()

    async def _holes(self) -> FindHole:
        insight = self._place.insight
        if insight is None:
            paths = await self._place.lost_objects()
            lost = await self._ending.answer(lambda: excuses(self._client, paths))
            return lambda partition, at, end: hole_at(self._client, partition, at, end, lost)

        async def find(partition: TopicPartition, at: int, _: int) -> Hole | None:
            return insight.hole_at(partition, at)

        return find

    async def _look(self) -> None:
        """Fetch all committed offsets of all groups."""
        async with asyncio.timeout(self._reading):
            if self._load.groups:
                await self._groups.look()
            await self._ending.commits(self._workload.groups, self._load.shared.places)


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
