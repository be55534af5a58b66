"""Admin operations of a run: topics are made, configured and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from milena.lab.chaos.clients import ChaosAdmin, Clients
from milena.lab.chaos.journal import Journal
from milena.lab.histories.events import Invoke, RequestOutcome, TopicChange
from milena.runtime.clock import Clock
from milena.runtime.randomness import Randomness

MADE: Final = "made-"
"""The beginning of the names of all that are made here."""
LONGEST_PAUSE: Final = 4.0
MOST: Final = 10
"""Topics of a library that are there at once."""
RETENTION: Final = 1_000_000
"""The least milliseconds."""


class Changes:
    """By one library."""

    def __init__(
        self, clients: Clients, journal: Journal, clock: Clock, random: Randomness, replicas: Sequence[int]
    ) -> None:
        """``replicas``: how many a topic may have."""
        self._clients = clients
        self._journal = journal
        self._clock = clock
        self._random = random
        self._replicas = replicas

    async def make(self, stopping: asyncio.Event) -> None:
        """Some stay to the end."""
        admin = await self._clients.admin()
        there: list[str] = []
        unsure: list[str] = []
        """Made or deleted, perhaps."""
        number = 0
        while not stopping.is_set():
            unsure = await self._delete_again(admin, unsure)
            name = f"{MADE}{self._clients.name}-{number}"
            number += 1
            match await self._create(admin, name):
                case RequestOutcome.OK:
                    there.append(name)
                case RequestOutcome.UNKNOWN:
                    unsure.append(name)
                case _:
                    pass
            await self._pause()
            if there and self._random.below(2):
                await self._configure(admin, self._random.choice(there))
                await self._pause()
            if len(there) > MOST or (there and self._random.below(2)):
                name = there.pop(self._random.below(len(there)))
                if not await self._delete(admin, name):
                    unsure.append(name)
            await self._pause()
        await admin.close()

    async def come_and_go(self, name: str, stopping: asyncio.Event) -> None:
        """Create one topic, delete it, create it again."""
        admin = await self._clients.admin()
        while not stopping.is_set():
            await self._create(admin, name)
            await self._clock.sleep(self._random.uniform(1, 2 * LONGEST_PAUSE))
            await self._delete(admin, name)
            await self._clock.sleep(self._random.uniform(0, LONGEST_PAUSE / 2))
        await admin.close()

    async def _create(self, admin: ChaosAdmin, name: str) -> RequestOutcome:
        config = self._config()
        begun = self._begin(name, exists=True)
        replicas = self._random.choice(self._replicas) if len(self._replicas) > 1 else self._replicas[0]
        outcome = await admin.create_topic(name, 1 + self._random.below(3), replicas, config)
        self._journal.note(TopicChange(name, True, outcome, config, begun))
        return outcome

    async def _configure(self, admin: ChaosAdmin, name: str) -> None:
        config = self._config()
        begun = self._begin(name, exists=True)
        self._journal.note(TopicChange(name, True, await admin.set_config(name, config), config, begun))

    async def _delete(self, admin: ChaosAdmin, name: str) -> bool:
        """Returns whether that is certain."""
        begun = self._begin(name, exists=False)
        outcome = await admin.delete_topic(name)
        self._journal.note(TopicChange(name, False, outcome, begun=begun))
        return outcome is RequestOutcome.OK

    async def _delete_again(self, admin: ChaosAdmin, unsure: Sequence[str]) -> list[str]:
        """Delete those of these topics that are there, or more and more would stay until the run ends. Returns
        those of which that is not certain yet."""
        listed = await admin.topics() if unsure else ()
        if listed is None:
            return [*unsure]
        return [name for name in unsure if name in listed and not await self._delete(admin, name)]

    def _begin(self, name: str, *, exists: bool) -> float:
        begun = self._journal.now()
        self._journal.note(Invoke("change", begun, value=name, acks=int(exists)))
        return begun

    def _config(self) -> dict[str, str]:
        return {"retention.ms": str(RETENTION + self._random.below(RETENTION))}

    async def _pause(self) -> None:
        await self._clock.sleep(self._random.uniform(0, LONGEST_PAUSE))
