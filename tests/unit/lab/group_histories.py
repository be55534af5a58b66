"""Random valid histories of one group, by a simple coordinator that handles one request after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from milena.lab.histories.events import Event
from milena.lab.histories.group_events import (
    GroupDelete,
    Join,
    MemberHeartbeat,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    RequestOutcome,
    Settled,
    Share,
    Sync,
)
from milena.protocol.types import TopicPartition

GROUP = "g"
PARTITIONS: tuple[TopicPartition, ...] = (("t", 0), ("t", 1), ("t", 2))
NODES = ("a", "b", "c")
INSTANCE = "static"
T = TypeVar("T")


@dataclass
class Parts:
    """A history whose events a test can replace."""

    events: list[Event]
    end: float

    def of(self, kind: type[T], wanted: Callable[[T], bool] = lambda _: True) -> list[T]:
        return [one for one in self.events if isinstance(one, kind) and wanted(one)]

    def with_changed(self, event: Any, **values: Any) -> Parts:
        changed = replace(event, **values)
        return Parts([changed if one is event else one for one in self.events], self.end)

    def plus(self, *events: Event) -> Parts:
        return Parts([*self.events, *events], self.end)


class SequentialCoordinator:
    """Handles requests in turn; some answers are lost. All nodes share one state."""

    def __init__(self, seed: int, *, sure: bool) -> None:
        """``sure``: every deletion is answered."""
        self.random = Random(seed)
        self.sure = sure
        self.events: list[Event] = []
        self.now = 0.0
        self.node = "a"
        self.generation = 0
        self.members: dict[str, str] = {}
        self.shares: dict[str, Share] = {}
        self.offsets: dict[TopicPartition, tuple[int, str]] = {}
        self.numbers = iter(range(1_000_000))

    def step(self) -> tuple[str, str, float, float]:
        """Group, node, begun, ended of the next request."""
        begun, self.now = self.now, self.now + self.random.uniform(0.1, 1)
        return GROUP, self.node, begun, self.now

    def outcome(self) -> RequestOutcome:
        return self.random.choice((RequestOutcome.OK, RequestOutcome.OK, RequestOutcome.OK, RequestOutcome.UNKNOWN))

    def deleted(self) -> RequestOutcome:
        return RequestOutcome.OK if self.sure else self.outcome()

    def rebalance(self) -> None:
        """Some members are new, some stay: all join, the leader sends the assignment, all sync. A member whose
        answer was lost sends no later request."""
        new = [f"m{next(self.numbers)}" for _ in range(self.random.randrange(1, 3))]
        kept = [member for member, instance in self.members.items() if not instance and self.random.random() < 0.5]
        self.members = {f"s{next(self.numbers)}": INSTANCE} | dict.fromkeys([*kept, *new], "")
        self.generation += 1
        roster = tuple(self.members.items())
        leader = self.random.choice(list(self.members))
        for member, instance in roster:
            listed = roster if member == leader else ()
            self.events.append(
                Join(*self.step(), RequestOutcome.OK, member, self.generation, instance, leader=leader, members=listed)
            )
        names = list(self.members)
        self.shares = {
            member: tuple(one for at, one in enumerate(PARTITIONS) if at % len(names) == number)
            for number, member in enumerate(names)
        }
        for member in sorted(names, key=lambda one: one != leader):
            sent = tuple(self.shares.items()) if member == leader else None
            outcome = RequestOutcome.OK if member == leader else self.outcome()
            share = self.shares[member] if outcome is RequestOutcome.OK else ()
            instance = self.members[member]
            self.events.append(Sync(*self.step(), outcome, member, self.generation, instance, sent=sent, share=share))

    def commit(self) -> None:
        partition, value = self.random.choice(PARTITIONS), next(self.numbers)
        member = self.random.choice([*self.members])
        outcome = self.random.choice((*RequestOutcome, RequestOutcome.OK))
        if outcome is RequestOutcome.OK or (outcome is RequestOutcome.UNKNOWN and self.random.random() < 0.5):
            self.offsets[partition] = (value, f"by {member}")
        generation = self.generation if outcome is not RequestOutcome.FAILED else self.generation - 1
        self.events.append(
            OffsetCommit(
                *self.step(), outcome, member, generation, self.members[member], partition, value, f"by {member}"
            )
        )

    def fetch(self) -> None:
        for partition in PARTITIONS:
            value, metadata = self.offsets.get(partition, (-1, ""))
            self.events.append(OffsetFetch(*self.step(), RequestOutcome.OK, partition, value, metadata))

    def delete_offset(self) -> None:
        partition = self.random.choice(PARTITIONS)
        self.offsets.pop(partition, None)
        self.events.append(OffsetDelete(*self.step(), self.deleted(), partition))

    def delete_group(self) -> None:
        self.members, self.shares, self.generation = {}, {}, 0
        self.offsets.clear()
        self.events.append(GroupDelete(*self.step(), self.deleted()))
        self.events.append(GroupDelete(*self.step(), RequestOutcome.FAILED, absent=True))
        self.rebalance()

    def beat(self) -> None:
        for member, instance in self.members.items():
            self.events.append(MemberHeartbeat(*self.step(), RequestOutcome.OK, member, self.generation, instance))

    def move(self) -> None:
        self.node = self.random.choice(NODES)


def valid(seed: int, steps: int = 25, *, sure: bool = True) -> Parts:
    """A history that ends with a deletion of the group and two rebalances, each followed by commits and fetches."""
    coordinator = SequentialCoordinator(seed, sure=sure)
    coordinator.rebalance()
    does = (
        coordinator.commit,
        coordinator.commit,
        coordinator.commit,
        coordinator.fetch,
        coordinator.fetch,
        coordinator.beat,
        coordinator.move,
        coordinator.delete_offset,
    )
    for _ in range(steps):
        coordinator.random.choice((*does, coordinator.rebalance, coordinator.delete_group))()
    coordinator.delete_group()
    for _ in range(2):
        coordinator.rebalance()
        coordinator.commit()
        coordinator.beat()
        for partition in PARTITIONS:
            coordinator.offsets[partition] = (next(coordinator.numbers), "last")
            member, instance = next(iter(coordinator.members.items()))
            value, metadata = coordinator.offsets[partition]
            head = (*coordinator.step(), RequestOutcome.OK, member, coordinator.generation, instance)
            coordinator.events.append(OffsetCommit(*head, partition, value, metadata))
        coordinator.fetch()
    coordinator.events.append(Settled(coordinator.now))
    coordinator.fetch()
    return Parts(coordinator.events, coordinator.now)
