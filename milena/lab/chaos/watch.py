"""Verifies that a fault has an effect: what other nodes or the node itself report while it lasts.

A fault that was not carried out (a command that did not arrive, a rule that matches no link) would otherwise look like
a fault that the cluster survived. A slow answer is no evidence: a node that has ended refuses connections, and a paused
node answers nothing while others answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from milena.client.cluster import ClusterView
from milena.lab.chaos.faults import FAULTS, SLACK, Kind, Notice, Shape, Step, Trait, has
from milena.lab.chaos.health import Health, Quorum, Reply
from milena.lab.chaos.place import Place
from milena.lab.histories.faults import Effect
from milena.protocol.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INTERVAL: Final = 0.25
SECONDS: Final = 1.0
"""For an answer."""
BEHIND: Final = 2.0
"""Seconds after which a broker that hears the controller has fetched what the metadata log had."""
CLOCKS_DIFFER_MS: Final = 500.0
Counts: TypeAlias = Mapping[int, Mapping[str, float]]
"""``Place.troubles`` of each node; empty while it is down."""
Replicas: TypeAlias = Mapping[tuple[str, int], frozenset[int]]


class Watch:
    """Observes each fault of a run from its begin to its end."""

    observes = True

    def __init__(self, place: Place, health: Health, shape: Shape) -> None:
        self._place = place
        self._health = health
        self._shape = shape
        self._clock = place.runtime.clock

    @asynccontextmanager
    async def over(self, step: Step, others: Collection[Step]) -> AsyncIterator[Sight]:
        """Look repeatedly until the fault was noticed or the body ends. ``others``: the faults at the same time."""
        sight = Sight(step, others, self._shape)
        sight.before = await self._counts(step)
        notice = FAULTS[step.kind].notice
        if notice is Notice.MOVED:
            sight.replicas = _replicas(await self._health.views())
        if notice is Notice.NEW_DIRECTORY:
            quorum = await self._quorum(step.nodes)
            sight.directories = None if quorum is None else quorum.directories

        async def look() -> None:
            while not await self._is_seen(sight):
                await self._clock.sleep(SECONDS if notice is Notice.COUNTED else INTERVAL)
            sight.seen.set()

        looking = asyncio.ensure_future(look())
        try:
            yield sight
            if step.kind is Kind.LOST_OBJECTS and await self._is_seen(sight):
                sight.seen.set()
        finally:
            looking.cancel()
            await asyncio.wait([looking])
        if not looking.cancelled() and (error := looking.exception()) is not None:
            raise error

    async def linger(self, sight: Sight) -> None:
        """Let a fault that is about to be mended last a little longer if it was not noticed yet."""
        ends = has(sight.step.kind, Trait.ENDS_IN_TIME) or sight.is_hidden
        if not ends and is_observable(sight.step, sight.before):
            await self.wait(sight)

    async def wait(self, sight: Sight) -> None:
        """Wait at most ``SLACK`` seconds until the fault was noticed."""
        end = self._clock.monotonic() + SLACK
        while not sight.seen.is_set() and self._clock.monotonic() < end:
            await self._clock.sleep(INTERVAL)

    @asynccontextmanager
    async def silence(self, sight: Sight) -> AsyncIterator[None]:
        """The node is paused while the body lasts. The fault is noticed if the node answers nothing in all of that time
        and keeps its connections, and another node answers during the pause."""
        (node,) = sight.step.nodes
        others = [one for one in (*self._shape.brokers, self._shape.controller) if one != node]
        others = [one for one in others if one not in sight.away] or others
        own = asyncio.ensure_future(self._until([node], {Reply.ANSWERED, Reply.GONE}))
        other = asyncio.ensure_future(self._until(others, {Reply.ANSWERED}))
        try:
            yield
            if not own.done() and other.done():
                sight.seen.set()
        finally:
            for one in (own, other):
                one.cancel()
            await asyncio.wait([own, other])

    async def _until(self, nodes: Sequence[int], replies: Collection[Reply]) -> None:
        """Ask the nodes in turn until one gives one of these replies."""
        while True:
            for node in nodes:
                reply = await self._reply(node)
                if reply in replies:
                    return
                if reply is Reply.GONE:
                    await self._clock.sleep(INTERVAL)

    async def is_down(self, node: int) -> bool:
        """Whether the node refuses connections. A node that does not answer may be slow."""
        return await self._reply(node) is Reply.GONE

    async def _reply(self, node: int) -> Reply:
        address = await self._place.address(node)
        return Reply.GONE if address is None else await self._health.reply(address, SECONDS)

    async def _is_seen(self, sight: Sight) -> bool:
        step = sight.step
        row = FAULTS[step.kind]
        match row.notice:
            case Notice.NEW_DIRECTORY:
                return await self._has_new_directory(sight)
            case Notice.DOWN:
                return await self.is_down(step.nodes[0])
            case Notice.CUT if step.kind is Kind.CUT_ONE_WAY and step.nodes[0] == self._shape.controller:
                return await self._hears_nothing(sight)
            case Notice.CUT:
                return is_cut(step, self._shape, await self._views(), sight.away)
            case Notice.OFFLINE:
                return await self._is_offline(step.nodes[0])
            case Notice.CLOCK:
                return has_jumped(step, sight.before, await self._counts(step))
            case Notice.MOVED:
                return await self._reassigns() or has_moved(sight.replicas, _replicas(await self._health.views()))
            case Notice.STALE_ALONE:
                return all([await self.is_down(node) for node in step.nodes[1:]])
            case Notice.COUNTED:
                return has_grown(row.counted, sight.before, await self._counts(step))
            case Notice.BY_ACT:
                return False

    async def _hears_nothing(self, sight: Sight) -> bool:
        """Whether the controller's answers do not reach a broker. Its heartbeats arrive, so it is not fenced, but it
        does not fetch the metadata log further, while others do."""
        quorum = await self._quorum(sight.step.nodes)
        now = self._clock.monotonic()
        if quorum is None:
            return False
        sight.ends.append((now, quorum.end))
        ends = [end for at, end in sight.ends if at <= now - BEHIND]
        return bool(ends) and hears_nothing(sight.step.nodes[1], quorum.fetched, ends[-1])

    async def _reassigns(self) -> bool:
        """Whether a reassignment is under way. It changes the replicas only at its end, which it does not reach while a
        new replica is down."""
        for broker in self._shape.brokers:
            address = await self._place.address(broker)
            if address is not None and await self._health.reassigns(address, SECONDS):
                return True
        return False

    async def _has_new_directory(self, sight: Sight) -> bool:
        """Whether the broker of a replaced disk has registered a log directory with a new id."""
        quorum = await self._quorum(sight.step.nodes)
        if quorum is None or sight.directories is None:
            return False
        return any(broker == sight.step.nodes[0] for broker, _ in quorum.directories - sight.directories)

    async def _quorum(self, nodes: Collection[int]) -> Quorum | None:
        """The state of the quorum as the first broker reports it that answers and has no fault."""
        for broker in self._shape.brokers:
            address = None if broker in nodes else await self._place.address(broker)
            if address is not None and (quorum := await self._health.quorum(address, SECONDS)) is not None:
                return quorum
        return None

    async def _views(self) -> list[ClusterView]:
        """The metadata of the brokers that answer. A broker that is cut off has old metadata."""
        return [view for view in await self._health.views(SECONDS) if view is not None]

    async def _is_offline(self, broker: int) -> bool:
        """Whether the broker reports an offline log directory, or has ended because all are offline."""
        address = await self._place.address(broker)
        return address is None or await self._health.has_offline_directory(address, SECONDS)

    async def _counts(self, step: Step) -> Counts:
        """``Place.troubles`` of the nodes of a fault. ``wall_ms`` is relative to the clock of the run."""
        if FAULTS[step.kind].notice not in (Notice.CLOCK, Notice.COUNTED):
            return {}
        found = {}
        for node in step.nodes or self._shape.brokers:
            counts = await self._place.troubles(node)
            now = self._clock.time_ms()
            found[node] = {name: value - now if name == "wall_ms" else value for name, value in counts.items()}
        return found


class Unobserved(Watch):
    """In place of a ``Watch`` where faults overlap: nothing is observed, and no fault lasts longer than planned."""

    observes = False

    @asynccontextmanager
    async def over(self, step: Step, others: Collection[Step]) -> AsyncIterator[Sight]:
        yield Sight(step, others, self._shape)

    async def linger(self, sight: Sight) -> None:
        """Return at once."""

    async def wait(self, sight: Sight) -> None:
        """Return at once."""

    @asynccontextmanager
    async def silence(self, sight: Sight) -> AsyncIterator[None]:
        yield


class Doomed(NamedTuple):
    """Writes that these partitions acknowledge between two times are lost (``Fault.doomed``)."""

    places: tuple[TopicPartition, ...]
    begun: float
    ended: float


class Sight:
    """What was noticed of one fault so far."""

    def __init__(self, step: Step, others: Collection[Step], shape: Shape) -> None:
        self.step = step
        self.seen = asyncio.Event()
        self.away = frozenset(node for other in others for node in other.nodes)
        """The nodes of other faults."""
        self.is_hidden = is_hidden(step, others)
        self.is_omitted = False
        """Whether the place has done nothing, because the fault would have had no effect."""
        self.carried_out = inf
        """When the fault was injected, in the time of the history."""
        self.doomed: Doomed | None = None
        self.before: Counts = {}
        self.replicas: Replicas = {}
        self.directories: frozenset[tuple[int, str]] | None = None
        """Log directories of brokers before the fault; None if they are unknown."""
        self.ends: list[tuple[float, int]] = []
        """(time of the answer, end of the metadata log)."""

    @property
    def effect(self) -> Effect | None:
        """None if no node can notice the fault."""
        if self.is_omitted:
            return Effect.OMITTED
        if self.seen.is_set():
            return Effect.SEEN
        if not is_observable(self.step, self.before):
            return None
        return Effect.HIDDEN if self.is_hidden else Effect.NOT_SEEN


def is_observable(step: Step, before: Counts) -> bool:
    """Whether nodes can report the fault. No node notices files that the place itself replaces."""
    if step.kind is Kind.ODD_TIER:
        return any("tier_odd" in counts for counts in before.values())
    return step.kind is not Kind.TIER_UNMOUNTED


def is_hidden(step: Step, others: Collection[Step]) -> bool:
    """Whether other faults at the same time may keep it from being noticed: without a controller no broker is fenced
    and no ISR shrinks, and a process that has ended reports nothing."""
    frozen = any(other.kind is Kind.CONTROLLER for other in others)
    ended = {node for other in others for node in other.nodes}
    return (frozen and has(step.kind, Trait.NEEDS_CONTROLLER)) or (
        has(step.kind, Trait.NEEDS_NODE) and bool(ended & set(step.nodes))
    )


def is_cut(step: Step, shape: Shape, views: Sequence[ClusterView], away: Collection[int]) -> bool:
    """Whether the metadata of other brokers shows it: a broker that the controller does not reach is fenced, and a
    broker that cannot replicate is not in the ISR. ``away``: brokers that are missing for another reason."""
    match step.kind:
        case Kind.ISOLATE | Kind.CUT_CONTROLLER:
            return any(step.nodes[0] not in view.brokers for view in views)
        case Kind.CUT_ONE_WAY if step.nodes[1] == shape.controller:
            return any(step.nodes[0] not in view.brokers for view in views)
        case Kind.CUT_ONE_WAY:
            pairs = [frozenset(step.nodes)]
        case _:
            pairs = [frozenset((step.nodes[0], other)) for other in shape.brokers if other != step.nodes[0]]
    apart = [pair for pair in pairs if not pair & set(away)]
    return any(pair in apart for view in views for pair in _lacking(view))


def hears_nothing(broker: int, fetched: Mapping[int, int], end: int) -> bool:
    """Whether the broker has not fetched the metadata log up to ``end`` (its end some seconds ago), and another broker
    has."""
    return fetched.get(broker, -1) < end <= max((at for one, at in fetched.items() if one != broker), default=-1)


def _lacking(view: ClusterView) -> Iterator[frozenset[int]]:
    """Yield (leader, replica that is not in its ISR)."""
    for topic in view.topics.values():
        for found in topic.partitions.values():
            for replica in set(found.replicas) - set(found.isr):
                yield frozenset((found.leader, replica))


def has_jumped(step: Step, before: Counts, now: Counts) -> bool:
    """Whether a clock has jumped by the fault's amount, to ``CLOCKS_DIFFER_MS``, since requests take time."""
    both = [(before[node], counts) for node, counts in now.items() if node in before]
    jumps = [counts["wall_ms"] - was["wall_ms"] for was, counts in both if "wall_ms" in counts and "wall_ms" in was]
    return any(abs(jump - 1000 * step.amount) < CLOCKS_DIFFER_MS for jump in jumps)


def has_moved(before: Replicas, now: Replicas) -> bool:
    return any(place in now and now[place] != had for place, had in before.items())


def has_grown(name: str, before: Counts, now: Counts) -> bool:
    """Whether a counter of a node has grown. A node that was restarted since then counts from 0."""
    return any(counts.get(name, 0) > before.get(node, {}).get(name, 0) for node, counts in now.items())


def _replicas(views: Sequence[ClusterView | None]) -> Replicas:
    """The replicas of all partitions as the first broker reports them that answered."""
    for view in views:
        if view is not None:
            return {
                (name, number): frozenset(found.replicas)
                for name, topic in view.topics.items()
                for number, found in topic.partitions.items()
            }
    return {}
