"""The probable effects of a script so far, by which the next request is chosen. It does not depend on responses."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from uuid import UUID

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.pair import versions
from tests.oracle.differential.sequences.script import TAG, Step
from tests.oracle.differential.sides import Name

T = TypeVar("T")
NOWHERE: Final = f"{TAG}-nowhere"
UNKNOWN_ID: Final = UUID(int=70)
ONCE: Final = frozenset({
    ApiKey.PRODUCE, ApiKey.JOIN_GROUP, ApiKey.ALTER_CONFIGS, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS,
})  # fmt: skip
"""Requests in which no item is repeated: Kafka loses batches, or never answers (docs/compatibility.md)."""


@dataclass
class Topic:
    name: str
    partitions: int
    append_time: bool = False


@dataclass
class Producer:
    name: Name | int
    epoch: int = 0
    next: dict[tuple[str, int], int] = field(default_factory=dict)
    """The next sequence number of each partition."""


@dataclass
class Transaction:
    """A transactional id, and its producer."""

    transactional_id: str
    producer: Name
    next: dict[tuple[str, int], int] = field(default_factory=dict)
    """The next sequence number of each partition."""


@dataclass
class Session:
    name: Name
    version: int
    epoch: int = 1


@dataclass
class Member:
    name: Name
    group: str
    client: int
    instance: str | None = None
    protocols: tuple[str, ...] = ("range",)


def _lists_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each list that has an item."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _lists_in(item, (*path, key))
    elif isinstance(value, list) and value:
        yield path
        for index, item in enumerate(value):
            yield from _lists_in(item, (*path, index))


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {**value, path[0]: _replaced(value[path[0]], path[1:], new)}
    return [_replaced(item, path[1:], new) if index == path[0] else item for index, item in enumerate(value)]


class World:
    """The random generator, and the objects that were probably created."""

    def __init__(self, seed: str) -> None:
        self.dice = random.Random(seed)
        self.topics: dict[str, Topic] = {}
        self.producers: list[Producer] = []
        self.transactions: dict[str, Transaction] = {}
        self.sessions: list[Session] = []
        self.members: list[Member] = []
        self.joined: dict[str, list[Member]] = {}
        """By group: members that have probably completed a whole rebalance."""
        self.generation: dict[str, int] = {}
        self._names = 0

    def of(self, *choices: T) -> T:
        return self.dice.choice(choices)

    def one(self, choices: Sequence[T]) -> T:
        return self.dice.choice(choices)

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def upto(self, most: int, least: int = 0) -> int:
        return self.dice.randint(least, most)

    def name(self, kind: str) -> Name:
        """Return a new name for an id that both sides will create."""
        self._names += 1
        return Name(f"{kind} {self._names}")

    def version(self, key: ApiKey, since: int = 0, until: int = 99) -> int:
        served = versions(key, since=since, until=until)
        return self.of(served[-1], self.one(served))

    def step(self, key: ApiKey, version: int, /, *, client: int | None = None, learns: str = "", **fields: Any) -> Step:
        if key not in ONCE and self.chance(0.05):
            fields = self._with_a_repeat(fields)
        return Step(key, version, fields, self.upto(1) if client is None else client, learns)

    def _with_a_repeat(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with one list item twice: next to the first one, or at the end of the list."""
        lists = list(_lists_in(fields))
        if not lists:
            return fields
        path = self.one(lists)
        found: Any = fields
        for part in path:
            found = found[part]
        at = self.upto(len(found) - 1)
        twice = [*found[: at + 1], found[at], *found[at + 1 :]] if self.chance(0.5) else [*found, found[at]]
        repeated: dict[str, Any] = _replaced(fields, path, twice)
        return repeated

    # -- topics

    def topic(self, strange: float = 0.06) -> str:
        """Return a topic, mostly one that exists."""
        if self.chance(strange) or not self.topics:
            return self.of(NOWHERE, NOWHERE, f"{TAG}-c", "a b", "")
        return self.one(sorted(self.topics))

    def topic_id(self, name: str) -> Any:
        if name.startswith(TAG) and name != NOWHERE:
            return Name(f"id of {name}")
        return UUID(int=77 + len(name))

    def partition(self, name: str, strange: float = 0.06) -> int:
        if self.chance(strange):
            return self.of(-1, 5, 2**31 - 1)
        return self.upto(self.topics[name].partitions - 1) if name in self.topics else 0

    def partitions(self, name: str, most: int = 3) -> list[int]:
        """Return several partitions, each once."""
        return sorted({self.partition(name) for _ in range(self.upto(most, 1))})

    def epoch(self) -> int:
        """Return a leader epoch for a client's request."""
        return self.of(-1, -1, -1, -1, 0, 0, 0, 1, 5, -2)
