"""Random faults and remote log metadata: all managers agree in the end, and no publication is lost."""

from __future__ import annotations

import asyncio

import pytest

from milena.lab.cluster import host_of
from milena.runtime.randomness import Randomness
from milena.tiered.metadata.metadata_manager import RemoteLogMetadataError
from milena.tiered.metadata.serialization import MetadataEvent
from milena.tiered.metadata.topic_based_manager import TopicMetadataManager
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tests.simulation.metadata_managers import DELETED, DELETING, FINISHED, PARTITIONS, Tier, beside_brokers, known, of
from tests.simulation.steps import until
from tests.unit.tiered.segments import update

MANAGERS = (1, 2)
ROUNDS = 6
PATIENCE = 30.0
"""Seconds after which a publication counts as lost with its manager."""


class Story:
    """Managers that start and stop, and the metadata that they have published."""

    def __init__(self, tier: Tier, random: Randomness) -> None:
        self.tier = tier
        self.random = random
        self.managers: dict[int, TopicMetadataManager] = {}
        self.acknowledged: dict[int, RemoteLogSegmentState] = {}
        """Segment to the last state whose publication a manager has acknowledged."""
        self.ended = False
        self._count = 0

    async def publish(self, number: int) -> None:
        """Publish the states of one segment after the other through the manager of this number.

        A failed call ends the states of its segment.
        """
        while not self.ended:
            await asyncio.sleep(self.random.uniform(0, 0.5))
            segment = self._count = self._count + 1
            one = of(PARTITIONS[segment % len(PARTITIONS)], segment, 10 * segment)
            steps: list[MetadataEvent] = [one, *(update(one, state) for state in (FINISHED, DELETING, DELETED))]
            for step in steps[: 1 + self.random.below(4)]:
                manager = self.managers.get(number)
                if manager is None or not await self.published(manager, step):
                    self.acknowledged.pop(segment, None)
                    break
                self.acknowledged[segment] = step.state

    async def published(self, manager: TopicMetadataManager, event: MetadataEvent) -> bool:
        try:
            async with asyncio.timeout(PATIENCE):
                await (manager.add(event) if isinstance(event, RemoteLogSegmentMetadata) else manager.update(event))
        except (RemoteLogMetadataError, TimeoutError):
            return False
        return True

    async def trouble(self) -> None:
        for _ in range(ROUNDS):
            await asyncio.sleep(self.random.uniform(0.5, 4))
            await self.random.choice((self.broker_ends, self.manager_ends, self.link_breaks))()

    async def broker_ends(self) -> None:
        cluster, broker = self.tier.cluster, 1 + self.random.below(3)
        await (cluster.lose_power if self.random.below(2) else cluster.kill)(host_of(broker))
        await asyncio.sleep(self.random.uniform(0.1, 8))
        await cluster.start_broker(broker)
        await asyncio.sleep(5)

    async def manager_ends(self) -> None:
        number = self.random.choice(MANAGERS)
        name, manager = f"tier-{number}", self.managers.pop(number)
        match self.random.below(3):
            case 0:
                await self.tier.end(manager, number)
            case 1:
                await self.tier.cluster.kill(name)
            case _:
                await self.tier.cluster.lose_power(name)
        if self.random.below(3) == 0:
            self.tier.cluster.wipe(name)
        await asyncio.sleep(self.random.uniform(0, 3))
        self.start(number)

    async def link_breaks(self) -> None:
        ends = f"tier-{self.random.choice(MANAGERS)}", host_of(1 + self.random.below(3))
        self.tier.cluster.world.fabric.cut(*ends)
        await asyncio.sleep(self.random.uniform(1, 20))
        self.tier.cluster.world.fabric.heal(*ends)

    def start(self, number: int) -> None:
        self.managers[number] = self.tier.manager(number)
        self.managers[number].assign(PARTITIONS[:4], PARTITIONS[4:])

    def seen(self, manager: TopicMetadataManager) -> list[tuple[int, str]] | None:
        if not all(manager.is_ready(partition) for partition in PARTITIONS):
            return None
        return sorted(one for partition in PARTITIONS for one in known(manager, partition))


@pytest.mark.parametrize("seed", range(2))
def test_all_managers_agree_in_the_end_and_have_the_acknowledged_states(seed: int) -> None:
    async def scenario(tier: Tier) -> None:
        story = Story(tier, Randomness(seed))
        for number in MANAGERS:
            story.start(number)
        publishing = [asyncio.ensure_future(story.publish(number)) for number in MANAGERS]
        await story.trouble()
        story.ended = True
        await asyncio.gather(*publishing)
        fresh = await tier.ready(3)
        every = (*story.managers.values(), fresh)
        await until(lambda: len({str(story.seen(one)) for one in every}) == 1 and story.seen(fresh) is not None, 120)
        states = dict(story.seen(fresh) or ())
        assert len(story.acknowledged) > 10
        for number, state in story.acknowledged.items():
            if state is DELETED:
                assert number not in states
            else:
                assert RemoteLogSegmentState[states[number]] >= state

    beside_brokers(scenario, seed=seed)
