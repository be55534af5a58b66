"""A workload of consumer groups: members join, leave, pause and continue with old generations; other clients delete
offsets and groups.

Each request is an event of the history, in every place. A group gets another name if it is unknown whether it was
deleted, since a deletion would explain any missing offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from math import inf
from typing import Final, TypeVar

from milena.client.cluster import Cluster
from milena.lab.chaos.groups.client import GroupClient, MemberIdentity
from milena.lab.histories.events import Event, RequestOutcome
from milena.lab.histories.group_events import Join, Share
from milena.protocol.errors import ErrorCode
from milena.protocol.types import TopicPartition
from milena.runtime.randomness import Randomness

T = TypeVar("T")

SESSION_MS: Final = 2000
REBALANCE_MS: Final = 3000
MEMBERS: Final = 2
INSTANCE: Final = "static"
RUSHING: Final = 3
EXPIRING: Final = (1.0, 4.0)
"""Retention in seconds of some commits."""
PATIENCE: Final = 4.0
"""Seconds that a healthy coordinator takes at most to answer after the rebalance time-out."""
TEAM, SOLO, RUSH = "team", "solo", "rush"
"""The kinds of groups: with members that stay, with commits and no members, with members that join all at once."""
KINDS: Final = (TEAM, SOLO, RUSH)


class GroupName:
    """The name of a group, which can be changed: ``team-0``, ``team-1`` and so on."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._number = 0
        self.names = [f"{kind}-0"]

    @property
    def name(self) -> str:
        return self.names[-1]

    def change(self) -> None:
        self._number += 1
        self.names.append(f"{self._kind}-{self._number}")


def kind_of(group: str) -> str | None:
    """The kind of a group of this workload; None for any other group."""
    kind = group.rpartition("-")[0]
    return kind if kind in KINDS else None


class GroupWorkload:
    """``stopping`` ends the workload. ``partitions``: those whose offsets are committed; their topics may be
    deleted."""

    def __init__(
        self,
        cluster: Cluster,
        note: Callable[[Event], object],
        now: Callable[[], float],
        random: Randomness,
        partitions: Sequence[TopicPartition],
        *,
        expires: bool = False,
        patience: float = PATIENCE,
        longest: float = inf,
    ) -> None:
        """``now``: the clock of the history. ``expires``: some commits have a short retention. ``patience``: seconds
        after the rebalance time-out in which coordinators must answer. ``longest``: seconds after which all groups
        get other names, since judging a group takes time that grows with the square of its requests."""
        self.stopping = asyncio.Event()
        self._cluster = cluster
        self._note = note
        self._now = now
        self._random = random
        self._clock = cluster.runtime.clock
        self._partitions = list(partitions)
        self._topics = sorted({topic for topic, _ in partitions})
        self._expires = expires
        self._patience = patience
        self._longest = longest
        self._number = 0
        self._team, self._solo, self._rush = map(GroupName, KINDS)

    def all(self) -> list[Coroutine[object, object, None]]:
        """Return all coroutines of the workload. They end when ``stopping`` is set."""
        dynamic = [self._members("") for _ in range(MEMBERS)]
        static = [self._members(INSTANCE) for _ in range(2)]
        renaming = [self._rename()] if self._longest < inf else []
        return [*dynamic, *static, self._erase(), self._commit_alone(), self._rush_in(), *renaming]

    async def look(self, also: Sequence[str] = ()) -> None:
        """Fetch all offsets of all groups, and of the groups in ``also``, until each coordinator has returned them."""
        for name in (*self._team.names, *self._solo.names, *self._rush.names, *also):
            client = self._client(name)
            while await client.fetch(self._partitions) is None:
                await self._sleep(0.3)
            client.close()

    def _client(self, group: str) -> GroupClient:
        return GroupClient(
            self._cluster,
            group,
            self._note,
            self._now,
            rebalance_ms=REBALANCE_MS,
            session_ms=SESSION_MS,
            patience=self._patience,
        )

    async def _sleep(self, longest: float, least: float = 0.0) -> None:
        await self._clock.sleep(self._random.uniform(least, longest))

    def _chosen(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, str]]:
        """Return an offset for one of these partitions, with metadata that no other commit has."""
        self._number += 1
        return {self._random.choice(partitions): (self._random.below(1000), f"commit {self._number}")}

    async def _rename(self) -> None:
        until = self._clock.monotonic() + self._longest
        while not self.stopping.is_set():
            await self._sleep(1)
            if self._clock.monotonic() > until:
                for name in (self._team, self._solo, self._rush):
                    name.change()
                until += self._longest

    # -- members of a team

    async def _members(self, instance: str) -> None:
        """Be one member after the other. A static member rejoins with its instance id and without its member id."""
        while not self.stopping.is_set():
            name = self._team.name
            client = self._client(name)
            who = await self._live(client, name, MemberIdentity(instance=instance))
            if who.generation >= 0 and not instance and self._random.below(2):
                await client.leave(who)
            elif who.generation >= 0 and self._random.below(2):
                # a member that was paused does not know that the others have continued
                await self._sleep(4)
                await self._speak(client, who, self._partitions)
            client.close()
            await self._sleep(3)

    async def _live(self, client: GroupClient, name: str, who: MemberIdentity) -> MemberIdentity:
        """Be a member for a random time. Return its last identity."""
        until = self._clock.monotonic() + self._random.uniform(2, 12)
        while not self.stopping.is_set() and self._clock.monotonic() < until and name == self._team.name:
            entered = await self._enter(client, who)
            if entered is None:
                who = MemberIdentity(instance=who.instance)
                await self._sleep(0.5)
                continue
            who, share = entered
            while not self.stopping.is_set() and self._clock.monotonic() < until:
                await self._sleep(0.6)
                if not await self._speak(client, who, share):
                    break
        return who

    async def _enter(self, client: GroupClient, who: MemberIdentity) -> tuple[MemberIdentity, Share] | None:
        """Send JoinGroup and SyncGroup. Return the identity and the assignment; None if the member must join again."""
        found = await client.join(who, self._topics)
        if found is not None and found[0] is ErrorCode.MEMBER_ID_REQUIRED:
            found = await client.join(MemberIdentity(found[1].member), self._topics)
        if found is None or found[0] is not ErrorCode.NONE or not found[1].member:
            return None
        join = found[1]
        if join.outcome is not RequestOutcome.OK:
            return None
        who = MemberIdentity(join.member, join.generation, who.instance)
        sync = await client.sync(who, self._shared_out(join))
        return (who, sync.share) if sync is not None and sync.outcome is RequestOutcome.OK else None

    def _shared_out(self, join: Join) -> Mapping[str, Share] | None:
        """Return random assignments of a group leader for each member; None if another member leads."""
        if join.leader != join.member or not join.members:
            return None
        names = self._random.shuffled([member for member, _ in join.members])
        return {
            member: tuple(partition for at, partition in enumerate(self._partitions) if at % len(names) == number)
            for number, member in enumerate(names)
        }

    async def _speak(self, client: GroupClient, who: MemberIdentity, share: Sequence[TopicPartition]) -> bool:
        """Send a heartbeat, a fetch or a commit. Return whether the member stays in its generation."""
        does = self._random.below(4)
        if does == 0 or not share:
            return await client.heartbeat(who) in (ErrorCode.NONE, None)
        if does == 1:
            await client.fetch(share)
            return True
        codes = await client.commit(self._chosen(share), who)
        return all(code is ErrorCode.NONE for code in codes.values())

    # -- deletions

    async def _erase(self) -> None:
        """Delete the team, which is rejected while it has members, and single offsets of it."""
        while not self.stopping.is_set():
            await self._sleep(2)
            client = self._client(self._team.name)
            if self._random.below(3):
                await client.delete_offset(self._random.choice(self._partitions))
            elif await client.delete_group() is RequestOutcome.UNKNOWN:
                self._team.change()
            client.close()

    async def _commit_alone(self) -> None:
        """Commit without membership, and delete, concurrently; then fetch all remaining offsets."""
        while not self.stopping.is_set():
            name = self._solo.name
            clients = [self._client(name) for _ in range(3)]
            for _ in range(1 + self._random.below(4)):
                await asyncio.gather(*(self._at_random(self._commit_or_delete, client) for client in clients))
                await clients[0].fetch(self._partitions)
                await self._sleep(0.7)
            for client in clients:
                client.close()

    async def _at_random(self, work: Callable[[T], Coroutine[object, object, None]], argument: T) -> None:
        """Do ``work`` after a moment. It is not a coroutine, which would never be awaited if the run ended before."""
        await self._clock.sleep(self._random.uniform(0, 0.01))
        await work(argument)

    async def _commit_or_delete(self, client: GroupClient) -> None:
        does = self._random.below(5)
        if does == 0:
            if await client.delete_group() is RequestOutcome.UNKNOWN and client.group == self._solo.name:
                self._solo.change()
        elif does == 1:
            await client.delete_offset(self._random.choice(self._partitions))
        else:
            short = self._expires and not self._random.below(2)
            retention = self._random.uniform(*EXPIRING) if short else None
            await client.commit(self._chosen(self._partitions), retention=retention)

    async def _rush_in(self) -> None:
        """Several members join at once while the group is deleted."""
        while not self.stopping.is_set():
            name = self._rush.name
            clients = [self._client(name) for _ in range(RUSHING)]
            working = [self._at_random(self._pass_through, client) for client in clients]
            await asyncio.gather(*working, self._at_random(self._delete_rush, name))
            await self._sleep(2)

    async def _pass_through(self, client: GroupClient) -> None:
        entered = await self._enter(client, MemberIdentity())
        if entered is not None:
            who, share = entered
            await self._speak(client, who, share)
            await client.leave(who)
        client.close()

    async def _delete_rush(self, name: str) -> None:
        client = self._client(name)
        if await client.delete_group() is RequestOutcome.UNKNOWN:
            self._rush.change()
        client.close()
