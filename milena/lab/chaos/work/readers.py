"""The readers of a run: at the tail, repeatedly from the start, of everything in compacted topics, and in groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from milena.lab.chaos.clients import ChaosConsumer, ChaosMember, Clients, Got
from milena.lab.chaos.journal import Journal
from milena.lab.chaos.work.commits import commit
from milena.lab.chaos.work.writers import name_of
from milena.lab.histories.events import Hole, Poll, RequestOutcome
from milena.lab.histories.keyed import FullRead
from milena.protocol.types import TopicPartition
from milena.runtime.clock import Clock
from milena.runtime.randomness import Randomness

POLL: Final = 0.5
TAIL: Final = "tail"
FROM_START: Final = "from the start"
MEMBER: Final = "member"
EVERYTHING: Final = "everything"
"""The readers of a library, as in the names of their sessions."""
LONGEST_SESSION: Final = 15.0
AGAIN: Final = 0.5
"""Seconds before a request for the end of a partition is repeated."""
LONGEST_READ: Final = 20.0
"""Seconds after which a read of everything ends without a result."""


class Readers:
    """The readers of one library."""

    def __init__(
        self,
        clients: Clients,
        journal: Journal,
        clock: Clock,
        random: Randomness,
        tombstones_stay: Mapping[str, float],
        *,
        clocks_jump: bool = False,
        resting: float = 0.0,
    ) -> None:
        """``tombstones_stay``: of compacted topics, the seconds for which tombstones are kept; unknown until the end if
        brokers' ``clocks_jump``. ``resting``: the most seconds before the next reader from the start."""
        self.name = clients.name
        self._clients = clients
        self._journal = journal
        self._clock = clock
        self._random = random
        self._tombstones_stay = tombstones_stay
        self._clocks_jump = clocks_jump
        self._resting = resting
        self._members = 0
        self._ends: Mapping[TopicPartition, int] | None = None
        self._holes: Mapping[TopicPartition, Sequence[tuple[int, int]]] = {}
        self._reached: dict[TopicPartition, int] = {}
        self._shares = ""
        """The group, if these are its members."""
        self._noted_up_to: dict[TopicPartition, int] = {}
        """The offset up to which the history has all records of a compacted partition."""

    def finish(
        self, ends: Mapping[TopicPartition, int], holes: Mapping[TopicPartition, Sequence[tuple[int, int]]]
    ) -> None:
        """All writers have stopped. ``holes``: offsets that cannot be read."""
        self._holes = holes
        self._ends = ends

    async def follow(self, places: Sequence[TopicPartition]) -> None:
        """Read all records from the start on until the ends are reached."""
        reached = self._reached = dict.fromkeys(places, 0)
        session = f"{self._clients.name}/{TAIL}"
        passed = 0
        while True:
            await self._follow(session, reached)
            if not self._pass_holes(reached):
                break
            passed += 1
            session = f"{self._clients.name}/{TAIL}, {passed}"
        self._has_ended(self._ends or (), session, self._tail)

    @property
    def _tail(self) -> str:
        return f"{self._clients.name}/{TAIL}"

    def _has_ended(self, places: Iterable[TopicPartition], session: str, series: str) -> None:
        now = self._journal.now()
        for place in places:
            self._journal.note(Poll(place, session, now, (), series))

    def behind(self) -> list[str]:
        """Return a text for each partition that the reader at the tail, or the group, has not read to its end."""
        return [
            f"{self._shares or self._clients.name} has read {place[0]}-{place[1]} up to {self._reached[place]} of {end}"
            for place, end in (self._ends or {}).items()
            if self._reached.get(place, end) < end
        ]

    async def _follow(self, session: str, reached: dict[TopicPartition, int]) -> None:
        """Read until the ends or a hole are reached."""
        consumer = await self._clients.consumer(reached)
        while self._ends is None or any(
            reached[place] < end and self._hole(place, reached[place]) is None for place, end in self._ends.items()
        ):
            for got in self._noted(session, await consumer.poll(POLL), self._tail):
                reached[got.partition] = got.offset + 1
        await consumer.close()

    def _hole(self, place: TopicPartition, at: int) -> tuple[int, int] | None:
        return next((hole for hole in self._holes.get(place, ()) if hole[0] <= at <= hole[1]), None)

    def _pass_holes(self, reached: dict[TopicPartition, int]) -> bool:
        """Continue after the holes that have been reached. Return whether there were any."""
        found = {place: hole for place, at in reached.items() if (hole := self._hole(place, at)) is not None}
        for place, (first, last) in found.items():
            self._journal.note(Hole(place, first, last))
            reached[place] = last + 1
        return bool(found)

    async def read_again(self, places: Sequence[TopicPartition], stopping: asyncio.Event) -> None:
        """Read one partition from its start for a while, then another one. Old records may be only in the tier."""
        number = 0
        while not stopping.is_set():
            if self._resting:
                await self._clock.sleep(self._random.uniform(0, self._resting))
            number += 1
            session = f"{self._clients.name}/{FROM_START}, {number}"
            consumer = await self._clients.consumer({self._random.choice(places): 0})
            until = self._clock.monotonic() + self._random.uniform(1, LONGEST_SESSION)
            while self._clock.monotonic() < until and not stopping.is_set():
                self._noted(session, await consumer.poll(POLL), session)
            await consumer.close()

    async def share(self, group: str, places: Sequence[TopicPartition]) -> None:
        """Be a member of a group that commits what it has read, leaves, and joins again, until the group has reached
        the ends. All members of a group belong to the same ``Readers``."""
        self._shares = group
        for place in places:
            self._reached.setdefault(place, 0)
        topics = sorted({topic for topic, _ in places})
        while self._ends is None or self.behind():
            member = await self._clients.member(group, topics)
            self._members += 1
            name = f"{self._clients.name}/{MEMBER} {self._members}"
            until = self._clock.monotonic() + self._random.uniform(3, 2 * LONGEST_SESSION)
            while self._clock.monotonic() < until and (self._ends is None or self.behind()):
                records = await member.poll(POLL)  # it may bring the next session
                found = self._noted(f"{name}, {member.session}", records, group)
                for got in found:
                    self._reached[got.partition] = max(got.offset + 1, self._reached[got.partition])
                if found:
                    offsets = {got.partition: got.offset + 1 for got in found}
                    await commit(self._journal, group, name, member, offsets)
                elif await self._commit_behind_holes(group, name, member, places):
                    break
            await member.close()
        self._has_ended((place for place in places if place in self._ends), f"{self._clients.name}/{MEMBER}", group)

    async def _commit_behind_holes(
        self, group: str, name: str, member: ChaosMember, places: Sequence[TopicPartition]
    ) -> bool:
        """Let the group continue after the holes that it has reached, with another member. Return whether there were
        any."""
        reached = {place: self._reached[place] for place in places}
        if not self._pass_holes(reached):
            return False
        offsets = {place: at for place, at in reached.items() if at > self._reached[place]}
        if await commit(self._journal, group, name, member, offsets) is RequestOutcome.OK:
            self._reached.update(offsets)
        return True

    def _noted(self, session: str, records: Sequence[Got], series: str) -> Sequence[Got]:
        found: dict[TopicPartition, list[tuple[int, str]]] = {}
        for got in records:
            found.setdefault(got.partition, []).append((got.offset, name_of(got.value or "")))
        now = self._journal.now()
        for place, pairs in found.items():
            self._journal.note(Poll(place, session, now, tuple(pairs), series))
        return records

    async def read_keys(self, places: Sequence[TopicPartition], stopping: asyncio.Event) -> None:
        """Read everything in a compacted partition, then in another one."""
        while not stopping.is_set():
            await self._clock.sleep(self._random.uniform(0, 4))
            place = self._random.choice(places)
            if not await self.read_everything(place):
                self._journal.say(f"{self._clients.name}: {place[0]}-{place[1]} was not read to its end")

    async def read_everything(
        self, place: TopicPartition, *, final: bool = False, seconds: float = LONGEST_READ
    ) -> bool:
        """Note the last record of each key. Return False if the end was not reached in time."""
        begun = self._journal.now()
        consumer = await self._clients.consumer({place: 0})
        try:
            found = await self._latest(consumer, place, begun + seconds)
        finally:
            await consumer.close()
        if found is None:
            return False
        upto, keys, replaced = found
        last = tuple((key, offset, value) for key, (offset, value) in sorted(keys.items()))
        stay = 0.0 if self._clocks_jump and not final else self._tombstones_stay[place[0]]
        reader = f"{self._clients.name}/{EVERYTHING}"
        self._journal.note(
            FullRead(place, begun, self._journal.now(), upto, last, stay, final, tuple(replaced), reader)
        )
        self._noted_up_to[place] = upto
        return True

    async def _latest(
        self, consumer: ChaosConsumer, place: TopicPartition, deadline: float
    ) -> tuple[int, dict[str, tuple[int, str | None]], list[tuple[str, int, str | None]]] | None:
        """Return the high watermark, the last record of each key below it, and the records that these have replaced and
        that are not in the history yet. None if the deadline has passed. The cleaner never removes the last record of a
        log, so a record at the last offset or after it will come."""
        while (bounds := await consumer.end_of(place)) is None:
            if self._journal.now() > deadline:
                return None
            await self._clock.sleep(AGAIN)
        keys: dict[str, tuple[int, str | None]] = {}
        replaced: list[tuple[str, int, str | None]] = []
        start, upto = bounds
        at, noted = start - 1, self._noted_up_to.get(place, 0)
        while at < upto - 1:
            if self._journal.now() > deadline:
                return None
            for got in await consumer.poll(POLL):
                at = got.offset
                if at < upto and got.key is not None:
                    before = keys.get(got.key)
                    if before is not None and before[0] >= noted:
                        replaced.append((got.key, *before))
                    keys[got.key] = got.offset, None if got.value is None else name_of(got.value)
        return upto, keys, replaced
