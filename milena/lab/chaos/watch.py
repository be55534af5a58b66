"""Whether a fault does anything: what is seen of it over the wire, or told by its node, while it lasts.

A fault that was ordered and not carried out (a verb that nobody heard, a rule that matches nothing) would otherwise
look like one that the cluster bore well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from milena.lab.chaos.faults import Kind
from milena.lab.chaos.health import Health
from milena.lab.chaos.place import Place
from milena.lab.chaos.plan import OF_LINKS, OF_TIER, SLACK, Shape, Step
from milena.lab.histories.faults import Effect
from milena.node.client.cluster import ClusterView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INTERVAL: Final = 0.25
SECONDS: Final = 1.0
"""For an answer. A node that stands still for a shorter time than two of these is asked for less."""
DOWN: Final = frozenset({Kind.KILL, Kind.RESTART, Kind.WIPE, Kind.POWER_LOSS, Kind.CONTROLLER})
STILL: Final = frozenset({Kind.STOP, Kind.HANG})
COUNTED: Final = {
    Kind.SLOW_DISK: "slowed",
    Kind.TIER_AWAY: "tier_failed",
    Kind.SLOW_OBJECTS: "tier_slowed",
    Kind.LOST_OBJECTS: "tier_lost",
}
"""What a node counts of its troubles, by their names in ``Place.troubles``."""
CLOCKS_DIFFER_MS: Final = 500.0
NEEDS_TIME: Final = OF_LINKS | OF_TIER | {Kind.FULL_DISK, Kind.SLOW_DISK, Kind.REASSIGN}
"""They are seen once something happens that they affect."""

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
        before = await self._told(step)
        replicas = _replicas(await self._health.views()) if step.kind is Kind.REASSIGN else {}

        async def look() -> None:
            while not await self._is_seen(sight, before, replicas):
                await self._clock.sleep(SECONDS if step.kind in COUNTED else INTERVAL)
            sight.seen.set()

        looking = asyncio.ensure_future(look())
        try:
            yield sight
            if step.kind is Kind.LOST_OBJECTS and await self._is_seen(sight, before, replicas):
                sight.seen.set()
        finally:
            looking.cancel()
            await asyncio.wait([looking])
        if not looking.cancelled() and (error := looking.exception()) is not None:
            raise error

    async def linger(self, sight: Sight) -> None:
        """A fault that is about to be mended is left a little longer if it needs time and was not seen yet."""
        if sight.step.kind in NEEDS_TIME and not sight.is_hidden:
            end = self._clock.monotonic() + SLACK
            while not sight.seen.is_set() and self._clock.monotonic() < end:
                await self._clock.sleep(INTERVAL)

    async def is_down(self, node: int, seconds: float = SECONDS) -> bool:
        """Whether it answers no request."""
        address = await self._place.address(node)
        return address is None or not await self._health.answers(address, seconds)

    async def _is_seen(self, sight: Sight, before: Told, replicas: Replicas) -> bool:
        step = sight.step
        match step.kind:
            case kind if kind in DOWN:
                return await self.is_down(step.nodes[0])
            case kind if kind in STILL:
                return await self.is_down(step.nodes[0], min(SECONDS, 0.4 * step.seconds))
            case kind if kind in OF_LINKS:
                return is_cut(step, self._shape, await self._views(), sight.away)
            case Kind.FULL_DISK:
                return await self._is_offline(step.nodes[0])
            case Kind.CLOCK:
                return has_jumped(step, before, await self._told(step))
            case Kind.REASSIGN:
                return has_moved(replicas, _replicas(await self._health.views()))
            case Kind.UNCLEAN:
                return all([await self.is_down(node) for node in step.nodes[1:]])
            case kind if kind in COUNTED:
                return has_grown(COUNTED[kind], before, await self._told(step))
            case _:
                return False

    async def _views(self) -> list[ClusterView]:
        """What the brokers tell that answer. One that is cut off knows nothing of it."""
        return [view for view in await self._health.views(SECONDS) if view is not None]

    async def _is_offline(self, broker: int) -> bool:
        """One of its log directories, or all: then it ends."""
        address = await self._place.address(broker)
        return address is None or await self._health.has_offline_directory(address, SECONDS)

    async def _told(self, step: Step) -> Told:
        """By the nodes that it befalls. The wall clock is told as what it is ahead of the run's own."""
        if step.kind is not Kind.CLOCK and step.kind not in COUNTED:
            return {}
        found = {}
        for node in step.nodes or self._shape.brokers:
            told = await self._place.troubles(node)
            now = self._clock.time_ms()
            found[node] = {name: value - now if name == "wall_ms" else value for name, value in told.items()}
        return found


class Sight:
    """What was seen of one fault so far."""

    def __init__(self, step: Step, others: Collection[Step], shape: Shape) -> None:
        self.step = step
        self.seen = asyncio.Event()
        self.away = frozenset(node for other in others for node in other.nodes)
        """Those that other faults befall."""
        self.is_hidden = is_hidden(step, others)

    @property
    def effect(self) -> Effect:
        if self.seen.is_set():
            return Effect.SEEN
        return Effect.HIDDEN if self.is_hidden else Effect.NOT_SEEN


def is_hidden(step: Step, others: Collection[Step]) -> bool:
    """Whether other faults at the same time may keep it from being seen: without a controller nobody is fenced and no
    ISR shrinks, and a process that was ended tells nothing."""
    frozen = any(other.kind is Kind.CONTROLLER for other in others)
    ended = {node for other in others for node in other.nodes}
    return (frozen and step.kind in OF_LINKS | {Kind.REASSIGN}) or (
        step.kind in (Kind.CLOCK, Kind.SLOW_DISK) and bool(ended & set(step.nodes))
    )


def is_cut(step: Step, shape: Shape, views: Sequence[ClusterView], away: Collection[int]) -> bool:
    """Whether the views of other brokers show it: the broker that the controller does not reach is fenced, and one
    that cannot replicate is not in the ISR. ``away``: brokers that lack for another reason."""
    match step.kind:
        case Kind.ISOLATE | Kind.CUT_CONTROLLER:
            return any(step.nodes[0] not in view.brokers for view in views)
        case Kind.CUT_ONE_WAY if shape.controller in step.nodes:
            (broker,) = set(step.nodes) - {shape.controller}
            return any(broker not in view.brokers for view in views)
        case Kind.CUT_ONE_WAY:
            pairs = [frozenset(step.nodes)]
        case _:
            pairs = [frozenset((step.nodes[0], other)) for other in shape.brokers if other != step.nodes[0]]
    apart = [pair for pair in pairs if not pair & set(away)]
    return any(pair in apart for view in views for pair in _lacking(view))


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
