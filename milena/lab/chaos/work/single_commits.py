"""Groups that commit once or a few times and never again. At the end each must still have its last acknowledged commit.
In other groups the next commit hides that a commit was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from milena.lab.chaos.clients import ChaosMember, Clients, Got
from milena.lab.chaos.journal import Journal
from milena.lab.chaos.work.commits import commit
from milena.lab.histories.events import RequestOutcome
from milena.protocol.types import TopicPartition
from milena.runtime.clock import Clock
from milena.runtime.randomness import Randomness

SINGLE: Final = "single"
"""The name of the members of these groups in commits, after the name of the library."""
LONGEST_PAUSE: Final = 10.0
POLL: Final = 0.5
JOINING: Final = 30.0
"""Seconds after which a group without a record is closed."""
MOST_COMMITS: Final = 3
"""The most commits of one group, one right after the other."""


class SingleCommits:
    """The groups of one library."""

    def __init__(self, clients: Clients, journal: Journal, clock: Clock, random: Randomness) -> None:
        self.groups: list[str] = []
        self._clients = clients
        self._journal = journal
        self._clock = clock
        self._random = random

    async def work(self, places: Sequence[TopicPartition], stopping: asyncio.Event) -> None:
        """Create one group after the other. The first one starts at once."""
        topics = sorted({topic for topic, _ in places})
        while not stopping.is_set():
            number = len(self.groups)
            group = f"kept-{self._clients.name}-{number}"
            self.groups.append(group)
            member = await self._clients.member(group, topics)
            if records := await self._read(member, stopping):
                await self._commit(group, f"{self._clients.name}/{SINGLE} {number}", member, records)
            await member.close()
            await self._clock.sleep(self._random.uniform(0, LONGEST_PAUSE))

    async def _read(self, member: ChaosMember, stopping: asyncio.Event) -> Sequence[Got]:
        """Return the first records: a member with records has its partitions. Empty if none come in time."""
        until = self._clock.monotonic() + JOINING
        while self._clock.monotonic() < until and not stopping.is_set():
            if records := await member.poll(POLL):
                return records
        return ()

    async def _commit(self, group: str, name: str, member: ChaosMember, records: Sequence[Got]) -> None:
        """Commit one to ``MOST_COMMITS`` times. A commit of unknown outcome is the last one."""
        for step in range(1 + self._random.below(MOST_COMMITS)):
            offsets = {got.partition: got.offset + 1 + step for got in records}
            if await commit(self._journal, group, name, member, offsets) is not RequestOutcome.OK:
                return
