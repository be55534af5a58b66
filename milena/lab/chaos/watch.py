"""Whether a fault does anything: what is seen of it over the wire, or told by its node, while it lasts.

A fault that was ordered and not carried out (a command that nobody heard, a rule that matches nothing) would otherwise
look like one that the cluster bore well. An answer that is slow is no evidence: a node that has ended has no connection
left, and one that stands still answers nothing for as long as it does, while others answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from milena.client.cluster import ClusterView
from milena.lab.chaos.faults import FAULTS, Kind, Notice, Trait, has
from milena.lab.chaos.health import Health, Quorum, Reply
from milena.lab.chaos.place import Place
from milena.lab.chaos.steps import SLACK, Shape, Step
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
Told: TypeAlias = Mapping[int, Mapping[str, float]]
"""What each node tells of its troubles; nothing while it is down."""
Replicas: TypeAlias = Mapping[tuple[str, int], frozenset[int]]


class Watch:
    """Of a run: looks at each fault from its begin to its end."""

    def __init__(self, place: Place, health: Health, shape: Shape) -> None:
        self._place = place
        self._health = health
        self._shape = shape
        self._clock = place.runtime.clock

    @asynccontextmanager
    async def over(self, step: Step, others: Collection[Step]) -> AsyncIterator[Sight]:
        """Looks again and again until the fault was seen or the body ends. ``others``: the faults at the same time."""
        sight = Sight(step, others, self._shape)
        sight.before = await self._told(step)
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
        """A little, until it was seen."""
        end = self._clock.monotonic() + SLACK
        while not sight.seen.is_set() and self._clock.monotonic() < end:
            await self._clock.sleep(INTERVAL)

    @asynccontextmanager
    async def silence(self, sight: Sight) -> AsyncIterator[None]:
        """While the body lasts its node stands still: seen if it answers nothing in all of that time, keeps its
        connections, and another node answers meanwhile."""
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
        """One of them says so, asked in turn."""
        while True:
            for node in nodes:
                reply = await self._reply(node)
                if reply in replies:
                    return
                if reply is Reply.GONE:
                    await self._clock.sleep(INTERVAL)

    async def is_down(self, node: int) -> bool:
        """Whether nobody listens there. One that only does not answer may be slow."""
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
                return has_jumped(step, sight.before, await self._told(step))
            case Notice.MOVED:
                return await self._reassigns() or has_moved(sight.replicas, _replicas(await self._health.views()))
            case Notice.STALE_ALONE:
                return all([await self.is_down(node) for node in step.nodes[1:]])
            case Notice.COUNTED:
                return has_grown(row.counted, sight.before, await self._told(step))
            case Notice.BY_ACT:
                return False

    async def _hears_nothing(self, sight: Sight) -> bool:
        """Whether the controller's answers do not reach a broker: its heartbeats arrive, so that nobody fences it, but
        it does not fetch on in the metadata log, while others do."""
        quorum = await self._quorum(sight.step.nodes)
        now = self._clock.monotonic()
        if quorum is None:
            return False
        sight.ends.append((now, quorum.end))
        ends = [end for at, end in sight.ends if at <= now - BEHIND]
        return bool(ends) and hears_nothing(sight.step.nodes[1], quorum.fetched, ends[-1])

    async def _reassigns(self) -> bool:
        """It is under way for as long as a replica that is wanted is down, and changes no replicas until it is done."""
        for broker in self._shape.brokers:
            address = await self._place.address(broker)
            if address is not None and await self._health.reassigns(address, SECONDS):
                return True
        return False

    async def _has_new_directory(self, sight: Sight) -> bool:
        """A disk that was replaced has a directory of a new id, as the broker tells once it is back."""
        quorum = await self._quorum(sight.step.nodes)
        if quorum is None or sight.directories is None:
            return False
        return any(broker == sight.step.nodes[0] for broker, _ in quorum.directories - sight.directories)

    async def _quorum(self, nodes: Collection[int]) -> Quorum | None:
        """As the first broker tells that answers, of those that this does not befall."""
        for broker in self._shape.brokers:
            address = None if broker in nodes else await self._place.address(broker)
            if address is not None and (quorum := await self._health.quorum(address, SECONDS)) is not None:
                return quorum
        return None

    async def _views(self) -> list[ClusterView]:
        """What the brokers tell that answer. One that is cut off knows nothing of it."""
        return [view for view in await self._health.views(SECONDS) if view is not None]

    async def _is_offline(self, broker: int) -> bool:
        """One of its log directories, or all: then it ends."""
        address = await self._place.address(broker)
        return address is None or await self._health.has_offline_directory(address, SECONDS)

    async def _told(self, step: Step) -> Told:
        """By the nodes that it befalls. The wall clock is told as what it is ahead of the run's own."""
        if FAULTS[step.kind].notice not in (Notice.CLOCK, Notice.COUNTED):
            return {}
        found = {}
        for node in step.nodes or self._shape.brokers:
            told = await self._place.troubles(node)
            now = self._clock.time_ms()
            found[node] = {name: value - now if name == "wall_ms" else value for name, value in told.items()}
        return found


class Doomed(NamedTuple):
    """What these partitions acknowledge in a time is lost (``Fault.doomed``)."""

    places: tuple[TopicPartition, ...]
    begun: float
    ended: float


class Sight:
    """What was seen of one fault so far."""

    def __init__(self, step: Step, others: Collection[Step], shape: Shape) -> None:
        self.step = step
        self.seen = asyncio.Event()
        self.away = frozenset(node for other in others for node in other.nodes)
        """Those that other faults befall."""
        self.is_hidden = is_hidden(step, others)
        self.carried_out = inf
        """When it was, in the time of the history."""
        self.doomed: Doomed | None = None
        self.before: Told = {}
        self.replicas: Replicas = {}
        self.directories: frozenset[tuple[int, str]] | None = None
        """Of brokers, before the fault; None if nobody told."""
        self.ends: list[tuple[float, int]] = []
        """Of the metadata log, and when they were told."""

    @property
    def effect(self) -> Effect | None:
        """None if no node can notice the fault."""
        if self.seen.is_set():
            return Effect.SEEN
        if not is_observable(self.step, self.before):
            return None
        return Effect.HIDDEN if self.is_hidden else Effect.NOT_SEEN


def is_observable(step: Step, before: Told) -> bool:
    """Whether nodes can report the fault. Files that the place itself replaces are noticed by no node."""
    if step.kind is Kind.ODD_TIER:
        return any("tier_odd" in told for told in before.values())
    return step.kind is not Kind.TIER_UNMOUNTED


def is_hidden(step: Step, others: Collection[Step]) -> bool:
    """Whether other faults at the same time may keep it from being seen: without a controller nobody is fenced and no
    ISR shrinks, and a process that was ended tells nothing."""
    frozen = any(other.kind is Kind.CONTROLLER for other in others)
    ended = {node for other in others for node in other.nodes}
    return (frozen and has(step.kind, Trait.NEEDS_CONTROLLER)) or (
        has(step.kind, Trait.NEEDS_NODE) and bool(ended & set(step.nodes))
    )


def is_cut(step: Step, shape: Shape, views: Sequence[ClusterView], away: Collection[int]) -> bool:
    """Whether the views of other brokers show it: the broker that the controller does not reach is fenced, and one
    that cannot replicate is not in the ISR. ``away``: brokers that lack for another reason."""
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
    """``end``: where the metadata log ended a while ago. Whether the broker has not fetched that much, and another one
    has."""
    return fetched.get(broker, -1) < end <= max((at for one, at in fetched.items() if one != broker), default=-1)


def _lacking(view: ClusterView) -> Iterator[frozenset[int]]:
    """(leader, replica that is not in its ISR)."""
    for topic in view.topics.values():
        for told in topic.partitions.values():
            for replica in set(told.replicas) - set(told.isr):
                yield frozenset((told.leader, replica))


def has_jumped(step: Step, before: Told, now: Told) -> bool:
    """Half a second more or less: asking takes its time."""
    both = [(before[node], told) for node, told in now.items() if node in before]
    jumps = [told["wall_ms"] - was["wall_ms"] for was, told in both if "wall_ms" in told and "wall_ms" in was]
    return any(abs(jump - 1000 * step.amount) < CLOCKS_DIFFER_MS for jump in jumps)


def has_moved(before: Replicas, now: Replicas) -> bool:
    return any(place in now and now[place] != had for place, had in before.items())


def has_grown(name: str, before: Told, now: Told) -> bool:
    """A node that was started meanwhile counts from 0 on."""
    return any(told.get(name, 0) > before.get(node, {}).get(name, 0) for node, told in now.items())


def _replicas(views: Sequence[ClusterView | None]) -> Replicas:
    """As the first one that answers tells."""
    for view in views:
        if view is not None:
            return {
                (name, number): frozenset(told.replicas)
                for name, topic in view.topics.items()
                for number, told in topic.partitions.items()
            }
    return {}
