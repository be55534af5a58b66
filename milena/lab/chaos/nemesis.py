"""Carries out a plan: injects each fault, mends it, and, in a plan of rounds, waits until all replicas are in sync."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from milena.lab.chaos.faults import FAULTS, Act, Fault, Kind, Shape, Step, Trait, has
from milena.lab.chaos.health import Health
from milena.lab.chaos.journal import Journal
from milena.lab.chaos.place import Place
from milena.lab.chaos.plan import Round, Stream, within
from milena.lab.chaos.topics import UNCLEAN, WEAK
from milena.lab.chaos.unclean import Unclean
from milena.lab.chaos.watch import Doomed, Sight, Unobserved, Watch
from milena.lab.chaos.writable import Replicas, effect_of, is_stale, must_be_writable, recovers
from milena.lab.histories.events import Invoke
from milena.lab.histories.faults import Effect
from milena.lab.histories.group_events import Trouble
from milena.lab.histories.invocations import nodes_text
from milena.protocol.types import TopicPartition

LOOKING: Final = 0.1
HEARTBEAT: Final = 0.5
"""Seconds between two heartbeats of a broker. The last one before a fault may be so old."""
MARGIN: Final = 0.25
"""Seconds for requests in flight."""
_SAID: Final = {
    None: "not observed",
    Effect.SEEN: "seen",
    Effect.NOT_SEEN: "not seen: no node noticed it",
    Effect.HIDDEN: "not seen, since another fault hid it",
}
IN_SYNC: Final = 120.0
"""Seconds after a fault in which all must be in sync."""


class Nemesis:
    """Carries out rounds one at a time, or the streams of an overlapping plan at once. Raises UserError if the place
    cannot do something, NotHealthy if the cluster does not recover."""

    def __init__(
        self,
        place: Place,
        health: Health,
        journal: Journal,
        shape: Shape,
        unclean: Unclean,
        places: Sequence[TopicPartition],
        *,
        observed: bool = True,
    ) -> None:
        """``places``: the partitions that are written to with acks=all. ``observed``: the effect of each fault is
        verified, which faults that overlap make impossible."""
        self._place = place
        self._health = health
        self._journal = journal
        self._shape = shape
        self._clock = place.runtime.clock
        self._unclean = unclean
        self._places = places
        self._watch = (Watch if observed else Unobserved)(place, health, shape)
        self._steps: tuple[Step, ...] = ()
        """The faults of the current round, until all replicas are in sync again."""
        self._acts: Mapping[Act, Callable[[Sight], Awaitable[None]]] = {
            Act.KILL: self._kill,
            Act.SHUT_DOWN: self._restart,
            Act.PAUSE: self._pause,
            Act.CUT: self._cut,
            Act.WIPE: self._wipe,
            Act.POWER_OFF: self._lose_power,
            Act.FAIL_DISK: self._fail_disk,
            Act.SLOW_DISK: self._slow_disk,
            Act.JUMP_CLOCK: self._jump_clock,
            Act.BREAK_TIER: self._break_tier,
            Act.UNMOUNT_TIER: self._unmount_tier,
            Act.ROLL: self._roll,
            Act.REASSIGN: self._reassign,
            Act.ELECT_UNCLEAN: self._elect_unclean,
            Act.POWER_OFF_ALL: self._lose_all_power,
            Act.DISTURB: self._disturb,
        }

    async def run_rounds(self, rounds: Sequence[Round], until: float) -> None:
        """Inject rounds that begin before ``until``."""
        for one in rounds:
            await self._clock.sleep(one.pause)
            if self._clock.monotonic() >= until:
                return
            self._steps = one.steps
            await self.inject(one)
            await self._health.in_sync(IN_SYNC)
            self._steps = ()
            await self._unclean.moves.prefer()

    async def run_streams(self, streams: Sequence[Stream]) -> None:
        """Carry out the streams of an overlapping plan at once. Return when all faults are mended."""
        async with asyncio.TaskGroup() as group:
            for one in streams:
                group.create_task(self._carry_out(one), name=f"faults of {one.name}")
        self._journal.tell("all faults are over")

    async def _carry_out(self, stream: Stream) -> None:
        for one in stream.rounds:
            await self._clock.sleep(one.pause)
            for step in one.steps:
                sight, begun, mended = await self._inject(step, ())
                self._journal.note(
                    Fault(
                        step.kind,
                        step.nodes,
                        begun,
                        mended,
                        recovers=IN_SYNC,
                        text=_details(step),
                        effect=Effect.OMITTED if sight.is_omitted else None,
                    )
                )
                for node in _affected(step, self._shape):
                    if (address := await self._place.address(node)) is not None:
                        self._journal.note(Trouble("{}:{}".format(*address), begun, mended))

    def explains(self, broker: int) -> bool:
        """Return whether a current fault can be the reason why other nodes do not list a broker."""
        return is_explained(broker, self._steps)

    async def inject(self, one: Round) -> None:
        """Inject all faults of a round at once. Return when the last one is mended and all partitions have accepted a
        write since then, or the time for that is over."""
        partitions = await self._health.partitions()
        addresses = await self._health.addresses()
        effects = [effect_of(step, self._shape) for step in one.steps]
        judged = {place: replicas for place, replicas in partitions.items() if place in self._places}
        writable = must_be_writable(effects, judged)
        latest = max(within(step, self._shape) for step in one.steps)
        stale = any(is_stale(step, self._shape) for step in one.steps)
        async with asyncio.TaskGroup() as group:
            steps = [group.create_task(self._inject(step, one.steps)) for step in one.steps]
        sights = [step.result() for step in steps]
        last = max(mended for _, _, mended in sights)
        late = await self._recovered(last)
        for sight, begun, mended in sights:
            doomed = sight.doomed or deposed(sight, begun, one.steps, partitions, self._shape)
            self._journal.note(
                Fault(
                    sight.step.kind,
                    sight.step.nodes,
                    begun,
                    mended,
                    writable,
                    latest,
                    recovers(self._shape),
                    text=_details(sight.step),
                    stale=stale,
                    effect=sight.effect,
                    late=late if mended == last else (),
                    doomed=doomed.places,
                    doomed_from=doomed.begun,
                    doomed_until=doomed.ended,
                )
            )
            for node in sight.step.nodes:
                if node in addresses:
                    self._journal.note(Trouble(addresses[node], begun, mended))

    async def _inject(self, step: Step, steps: Collection[Step]) -> tuple[Sight, float, float]:
        """Return what was noticed, and when the fault began and was mended."""
        text = f"{step.kind.value} {nodes_text(step.nodes)}".rstrip()
        details = f" {found}" if (found := _details(step)) else ""
        async with self._watch.over(step, [other for other in steps if other is not step]) as sight:
            self._journal.say(f"{text}{details} for {step.seconds:.1f} s")
            begun = self._journal.now()
            self._journal.note(Invoke("fault", begun, value=step.kind.value, key=nodes_text(step.nodes)))
            await self._acts[FAULTS[step.kind].act](sight)
            mended = self._journal.now()
        if sight.effect is Effect.OMITTED:
            self._journal.tell(f"{text} is not carried out: it would have no effect")
            return sight, begun, mended
        seen = f", and was {_SAID[sight.effect]}" if self._watch.observes else ""
        self._journal.tell(f"{text} is mended after {mended - begun:.1f} s{seen}")
        return sight, begun, mended

    async def _recovered(self, since: float) -> tuple[TopicPartition, ...]:
        """Wait until a write to each partition was acknowledged after ``since``. Return the partitions without one at
        the end of the time."""
        limit = recovers(self._shape)
        while late := [place for place in self._places if self._journal.acknowledged.get(place, -1.0) < since]:
            if self._journal.now() > since + limit:
                self._journal.tell(f"no writes after {limit:.1f} s: {', '.join(map(str, late))}")
                break
            await self._clock.sleep(LOOKING)
        else:
            self._journal.say(f"all take writes again, {self._journal.now() - since:.1f} s later")
        return tuple(late)

    async def _wait_duration(self, sight: Sight) -> None:
        """Wait for the duration of a fault, and a little longer if it has not been noticed yet."""
        await self._clock.sleep(sight.step.seconds)
        await self._watch.linger(sight)

    async def _kill(self, sight: Sight) -> None:
        (node,) = sight.step.nodes
        await self._place.kill(node)
        await self._wait_duration(sight)
        await self._place.start(node)

    async def _restart(self, sight: Sight) -> None:
        (node,) = sight.step.nodes
        await self._place.shut_down(node)
        await self._wait_duration(sight)
        await self._place.start(node)

    async def _pause(self, sight: Sight) -> None:
        (node,) = sight.step.nodes
        await self._place.pause(node)
        try:
            async with self._watch.silence(sight):
                await self._wait_duration(sight)
        finally:
            await self._place.resume(node)

    async def _wipe(self, sight: Sight) -> None:
        (node,) = sight.step.nodes
        await self._place.kill(node)
        await self._place.wipe(node)
        await self._clock.sleep(sight.step.seconds)
        await self._place.start(node)
        await self._watch.wait(sight)

    async def _lose_power(self, sight: Sight) -> None:
        (node,) = sight.step.nodes
        await self._place.power_off(node)
        async with self._watch.silence(sight):
            await self._wait_duration(sight)
        await self._place.start(node)

    async def _fail_disk(self, sight: Sight) -> None:
        """A node with a single log directory has ended by itself."""
        (node,) = sight.step.nodes
        if sight.step.kind is Kind.FULL_DISK:
            await self._place.fill_disk(node)
        else:
            await self._place.fail_directory(node)
        await self._wait_duration(sight)
        await self._place.kill(node)
        await self._place.start(node)

    async def _slow_disk(self, sight: Sight) -> None:
        (node,) = sight.step.nodes
        await self._place.slow_disk(node, sight.step.amount)
        await self._wait_duration(sight)
        await self._place.slow_disk(node, 0.0)

    async def _jump_clock(self, sight: Sight) -> None:
        (node,) = sight.step.nodes
        await self._place.jump_clock(node, sight.step.amount)
        await self._wait_duration(sight)
        await self._place.jump_clock(node, 0.0)

    async def _break_tier(self, sight: Sight) -> None:
        match sight.step.kind:
            case Kind.TIER_AWAY:
                await self._place.break_tier(away=True)
            case Kind.ODD_TIER:
                await self._place.break_tier(odd=sight.step.text)
            case Kind.SLOW_OBJECTS:
                await self._place.break_tier(delay=sight.step.amount)
            case _:
                await self._place.break_tier(lose=sight.step.amount)
        await self._wait_duration(sight)
        await self._place.break_tier()

    async def _unmount_tier(self, sight: Sight) -> None:
        if not await self._place.mount_tier(sight.step.nodes, mounted=False):
            sight.is_omitted = True
            return
        await self._wait_duration(sight)
        await self._place.mount_tier(sight.step.nodes, mounted=True)

    async def _lose_all_power(self, sight: Sight) -> None:
        for node in sight.step.nodes:
            await self._place.power_off(node)
        for node in sight.step.nodes:
            await self._wait_duration(sight)
            await self._place.start(node)

    async def _disturb(self, sight: Sight) -> None:
        assert self._place.insight is not None, "the plan has kinds of the place only"
        mend = await self._place.insight.disturb(sight.step)
        await self._wait_duration(sight)
        await mend()

    async def _cut(self, sight: Sight) -> None:
        for sender, receiver in cuts(sight.step, self._shape):
            await self._place.cut(sender, receiver)
        sight.carried_out = self._journal.now()
        await self._wait_duration(sight)
        await self._place.heal_links()

    async def _roll(self, sight: Sight) -> None:
        """Shut down and start each node as soon as all replicas are in sync."""
        down: list[bool] = []
        for node in sight.step.nodes:
            await self._health.in_sync(IN_SYNC)
            self._journal.say(f"rolling: {node}")
            await self._place.shut_down(node)
            down.append(await self._watch.is_down(node))
            await self._place.start(node)
        if all(down):
            sight.seen.set()

    async def _reassign(self, sight: Sight) -> None:
        await self._unclean.moves.go_and_return(sight.step.seconds)

    async def _elect_unclean(self, sight: Sight) -> None:
        span = await self._unclean.elect(sight.step)
        if span is not None:
            sight.doomed = Doomed(tuple(UNCLEAN.places), *span)


def is_explained(broker: int, steps: Collection[Step]) -> bool:
    """Return whether any of these faults can end the session of a broker."""
    return any(not has(step.kind, Trait.OWN_SESSIONS) or broker in step.nodes for step in steps)


def deposed(
    sight: Sight, begun: float, steps: Collection[Step], partitions: Mapping[TopicPartition, Replicas], shape: Shape
) -> Doomed:
    """Return the partitions whose isolated leader acknowledges writes with acks=1 that no other replica has, until it
    can have been replaced. None if the controller is away, which replaces leaders."""
    step = sight.step
    frozen = any(one.kind is Kind.CONTROLLER for one in steps)
    until = begun + shape.session - HEARTBEAT - MARGIN
    if step.kind is not Kind.ISOLATE or frozen or sight.carried_out + MARGIN >= until:
        return Doomed((), 0.0, 0.0)
    away = {node for one in steps for node in one.nodes}
    led = [place for place in WEAK.places if place in partitions and partitions[place].leader in step.nodes]
    places = tuple(place for place in led if set(partitions[place].isr) - away)
    return Doomed(places, sight.carried_out + MARGIN, until)


def _affected(step: Step, shape: Shape) -> Collection[int]:
    """Return the brokers that a fault can keep from answering in time."""
    if has(step.kind, Trait.OF_TIER):
        return ()
    linked = {node for link in cuts(step, shape) for node in link} if FAULTS[step.kind].act is Act.CUT else set()
    return [broker for broker in shape.brokers if broker in linked or broker in step.nodes]


def _details(step: Step) -> str:
    return f"{step.amount:.2f}" if step.amount else step.text


def cuts(step: Step, shape: Shape) -> list[tuple[int, int]]:
    """Return the links that a fault cuts: (sender, receiver)."""
    node = step.nodes[0]
    others = [one for one in shape.brokers if one != node]
    match step.kind:
        case Kind.CUT_ONE_WAY:
            return [(node, step.nodes[1])]
        case Kind.CUT_LINK:
            others = [step.nodes[1]]
        case Kind.CUT_CONTROLLER:
            others = [shape.controller]
        case Kind.CUT_FOLLOWERS:
            pass
        case _:
            others += [shape.controller, *step.nodes[1:]]
    return [link for other in others for link in ((node, other), (other, node))]
