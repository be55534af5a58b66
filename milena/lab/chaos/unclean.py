"""An unclean election: all in-sync replicas of all partitions are killed, and only a stale replica is started for a
while. Where unclean election is enabled it leads, and records that it lacks are lost; other partitions have no leader
until a member of the ISR is back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from milena.client.cluster import ClusterView
from milena.lab.chaos.faults import Step
from milena.lab.chaos.health import Health, NotHealthy
from milena.lab.chaos.journal import Journal
from milena.lab.chaos.moves import Moves
from milena.lab.chaos.place import Place
from milena.lab.chaos.topics import UNCLEAN

LEAVING: Final = 30.0
"""Seconds within which the stale replica must leave all ISRs."""
FALLING_BEHIND: Final = 2.0
"""Seconds in which the others take writes that the stale replica lacks."""
LEADING: Final = 20.0
"""Seconds within which the stale replica must lead the partitions with unclean election."""


class Unclean:
    """``moves``: kept here for the nemesis, which needs both."""

    def __init__(self, place: Place, health: Health, journal: Journal, moves: Moves) -> None:
        self.moves = moves
        self._place = place
        self._health = health
        self._journal = journal
        self._clock = place.runtime.clock

    async def elect(self, step: Step) -> tuple[float, float] | None:
        """Return from when to when the partitions with unclean election acknowledged writes that are lost; None if the
        stale replica did not become their leader."""
        stale, *others = step.nodes
        await self._place.kill(stale)
        await self._health.wait(lambda views: _still_in_isr(stale, views), LEAVING)
        begun = self._journal.now()
        await self._clock.sleep(FALLING_BEHIND)
        span: tuple[float, float] | None = (begun, self._journal.now())
        for other in others:
            await self._place.kill(other)
        self._journal.say(f"unclean: {stale} comes back alone")
        starting = asyncio.ensure_future(self._place.start(stale))
        try:
            await self._health.wait(lambda views: _not_led(stale, views), LEADING)
        except NotHealthy as error:
            self._journal.say(f"unclean: {error}")
            span = None
        await self._clock.sleep(FALLING_BEHIND)
        for other in others:
            await self._place.start(other)
        await starting
        return span


def _still_in_isr(broker: int, views: list[ClusterView | None]) -> Collection[str]:
    answered = [view for view in views if view is not None]
    found = [
        f"{broker} is in the ISR of {name}-{number}"
        for view in answered
        for name, topic in view.topics.items()
        for number, partition in topic.partitions.items()
        if broker in partition.isr and partition.isr != (broker,)
    ]
    return found if answered else ["no broker answers"]


def _not_led(broker: int, views: list[ClusterView | None]) -> Collection[str]:
    answered = [view for view in views if view is not None and broker in view.brokers]
    if not answered:
        return [f"{broker} does not serve"]
    return [
        f"{UNCLEAN.name}-{number} is led by {partition.leader}"
        for view in answered
        for name, topic in view.topics.items()
        if name == UNCLEAN.name
        for number, partition in topic.partitions.items()
        if partition.leader != broker
    ]
