"""Carries out a plan: injects each fault, mends it, and waits until all partitions are in sync again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from milena.lab.chaos.faults import Fault, Kind
from milena.lab.chaos.health import Health
from milena.lab.chaos.journal import Journal
from milena.lab.chaos.place import Place
from milena.lab.chaos.plan import Round, Shape, Step, within
from milena.lab.chaos.unclean import Unclean
from milena.lab.chaos.writable import Effect, effect_of, is_stale, must_be_writable, recovers
from milena.lab.histories.events import TopicPartition

IN_SYNC: Final = 120.0
"""Seconds after a fault in which all must be in sync."""


class Nemesis:
    """One round at a time. Raises UserError if the place cannot do something, NotHealthy if the cluster does not
    recover."""

    def __init__(self, place: Place, health: Health, journal: Journal, shape: Shape, unclean: Unclean) -> None:
        self._place = place
        self._health = health
        self._journal = journal
        self._shape = shape
        self._clock = place.runtime.clock
        self._unclean = unclean
        self._acts: Mapping[Kind, Callable[[Step], Awaitable[None]]] = {
            Kind.KILL: self._kill,
            Kind.STOP: self._pause,
            Kind.HANG: self._pause,
            Kind.RESTART: self._restart,
            Kind.ISOLATE: self._cut,
            Kind.CUT_CONTROLLER: self._cut,
            Kind.CUT_FOLLOWERS: self._cut,
            Kind.CUT_ONE_WAY: self._cut,
            Kind.WIPE: self._wipe,
            Kind.POWER_LOSS: self._lose_power,
            Kind.FULL_DISK: self._fill_disk,
            Kind.SLOW_DISK: self._slow_disk,
            Kind.TIER_AWAY: self._break_tier,
            Kind.SLOW_OBJECTS: self._break_tier,
            Kind.LOST_OBJECTS: self._break_tier,
            Kind.CONTROLLER: self._kill,
            Kind.CLOCK: self._jump_clock,
            Kind.ROLLING: self._roll,
            Kind.REASSIGN: self._reassign,
            Kind.UNCLEAN: self._elect_unclean,
        }

    async def trouble(self, rounds: Sequence[Round], until: float) -> None:
        """Rounds, as long as they begin before ``until``."""
        for one in rounds:
            await self._clock.sleep(one.pause)
            if self._clock.monotonic() >= until:
                return
            await self.inject(one)
            await self._health.in_sync(IN_SYNC)
            await self._unclean.moves.prefer()

    async def inject(self, one: Round) -> None:
        """All faults of a round begin at once. Returns when the last one is mended."""
        partitions = await self._health.partitions()
        effects: list[Effect] = [effect_of(step, self._shape) for step in one.steps]
        writable = must_be_writable(effects, partitions)
        latest = max(within(step, self._shape) for step in one.steps)
        stale = any(is_stale(step, self._shape) for step in one.steps)
        async with asyncio.TaskGroup() as steps:
            for step in one.steps:
                steps.create_task(self._inject(step, writable, latest, stale))

    async def _inject(self, step: Step, writable: tuple[TopicPartition, ...], latest: float, stale: bool) -> None:
        text = f"{step.kind.value} {' '.join(map(str, step.nodes))}".rstrip()
        details = f"{step.amount:.2f}" if step.amount else ""
        self._journal.say(f"{text} {details} for {step.seconds:.1f} s")
        begun = self._journal.now()
        await self._acts[step.kind](step)
        mended = self._journal.now()
        self._journal.say(f"{text} is mended")
        self._journal.fault(
            Fault(
                step.kind,
                step.nodes,
                begun,
                mended,
                writable,
                latest,
                recovers(self._shape),
                text=details,
                stale=stale,
            )
        )

    async def _last(self, step: Step) -> None:
        await self._clock.sleep(step.seconds)

    async def _kill(self, step: Step) -> None:
        (node,) = step.nodes
        await self._place.kill(node)
        await self._last(step)
        await self._place.start(node)

    async def _restart(self, step: Step) -> None:
        (node,) = step.nodes
        await self._place.shut_down(node)
        await self._last(step)
        await self._place.start(node)

    async def _pause(self, step: Step) -> None:
        (node,) = step.nodes
        await self._place.pause(node)
        try:
            await self._last(step)
        finally:
            await self._place.resume(node)

    async def _wipe(self, step: Step) -> None:
        (node,) = step.nodes
        await self._place.kill(node)
        await self._place.wipe(node)
        await self._last(step)
        await self._place.start(node)

    async def _lose_power(self, step: Step) -> None:
        (node,) = step.nodes
        await self._place.power_off(node)
        await self._last(step)
        await self._place.start(node)

    async def _fill_disk(self, step: Step) -> None:
        """The node may have ended by itself, if that was its only log directory."""
        (node,) = step.nodes
        await self._place.fill_disk(node)
        await self._last(step)
        await self._place.kill(node)
        await self._place.start(node)

    async def _slow_disk(self, step: Step) -> None:
        (node,) = step.nodes
        await self._place.slow_disk(node, step.amount)
        await self._last(step)
        await self._place.slow_disk(node, 0.0)

    async def _jump_clock(self, step: Step) -> None:
        (node,) = step.nodes
        await self._place.jump_clock(node, step.amount)
        await self._last(step)
        await self._place.jump_clock(node, 0.0)

    async def _break_tier(self, step: Step) -> None:
        match step.kind:
            case Kind.TIER_AWAY:
                await self._place.break_tier(away=True)
            case Kind.SLOW_OBJECTS:
                await self._place.break_tier(delay=step.amount)
            case _:
                await self._place.break_tier(lose=step.amount)
        await self._last(step)
        await self._place.break_tier()

    async def _cut(self, step: Step) -> None:
        for sender, receiver in cuts(step, self._shape):
            await self._place.cut(sender, receiver)
        await self._last(step)
        await self._place.heal_links()

    async def _roll(self, step: Step) -> None:
        """Each one goes as soon as all are in sync."""
        for node in step.nodes:
            await self._health.in_sync(IN_SYNC)
            self._journal.say(f"rolling: {node}")
            await self._place.shut_down(node)
            await self._place.start(node)

    async def _reassign(self, step: Step) -> None:
        await self._unclean.moves.go_and_return(step.seconds)

    async def _elect_unclean(self, step: Step) -> None:
        await self._unclean.elect(step)


def cuts(step: Step, shape: Shape) -> list[tuple[int, int]]:
    """The links that a fault cuts: (sender, receiver)."""
    node = step.nodes[0]
    others = [one for one in shape.brokers if one != node]
    match step.kind:
        case Kind.CUT_ONE_WAY:
            return [(node, step.nodes[1])]
        case Kind.CUT_CONTROLLER:
            others = [shape.controller]
        case Kind.CUT_FOLLOWERS:
            pass
        case _:
            others.append(shape.controller)
    return [link for other in others for link in ((node, other), (other, node))]
