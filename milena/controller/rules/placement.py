"""Placement of new partitions: striped over racks, then over the brokers of a rack (Kafka's StripedReplicaPlacer).

The first replica, the preferred leader, is always on an unfenced broker; the others prefer unfenced brokers in their
rack. Each partition starts one rack and one broker after the previous one. After as many partitions as there are
unfenced brokers all lists are shuffled, so that patterns do not repeat.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.randomness import Randomness


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may get replicas. Brokers in controlled shutdown, or with all directories cordoned, may not."""

    id: int
    rack: str | None
    fenced: bool


class _Ring:
    """The brokers of one kind in one rack, each returned once per round."""

    __slots__ = ("_brokers", "_offset", "_random", "_round", "_taken")

    def __init__(self, brokers: Iterable[int], random: Randomness) -> None:
        self._brokers = sorted(brokers)
        self._random = random
        self._offset = random.below(len(self._brokers)) if self._brokers else 0
        self._round = 0
        self._taken = 0

    def next(self, round_: int) -> int | None:
        """Return the next broker of this round; None if all were used."""
        size = len(self._brokers)
        if not size:
            return None
        if round_ != self._round:
            self._round = round_
            self._taken = 0
            self._offset = (self._offset + 1) % size
        if self._taken >= size:
            return None
        broker = self._brokers[(self._taken + self._offset) % size]
        self._taken += 1
        return broker

    def shuffle(self) -> None:
        self._brokers = self._random.shuffled(self._brokers)


@dataclass(frozen=True, slots=True)
class _Rack:
    unfenced: _Ring
    fenced: _Ring

    def next(self, round_: int) -> int | None:
        broker = self.unfenced.next(round_)
        return self.fenced.next(round_) if broker is None else broker

    def shuffle(self) -> None:
        self.unfenced.shuffle()
        self.fenced.shuffle()


class _Stripes:
    """All racks, and the position among them from which the next partition starts."""

    def __init__(self, brokers: list[UsableBroker], random: Randomness) -> None:
        names = sorted({broker.rack for broker in brokers}, key=lambda rack: (rack is not None, rack or ""))
        self._racks = [
            _Rack(
                unfenced=_Ring((b.id for b in brokers if b.rack == name and not b.fenced), random),
                fenced=_Ring((b.id for b in brokers if b.rack == name and b.fenced), random),
            )
            for name in names
        ]
        self._random = random
        self._unfenced = sum(not broker.fenced for broker in brokers)
        self._offset = random.below(len(self._racks))
        self._round = 0

    def place(self, replicas: int) -> list[int]:
        if self._round and self._round % self._unfenced == 0 and self._unfenced > 1:
            self._racks = self._random.shuffled(self._racks)
            for rack in self._racks:
                rack.shuffle()
        first_rack, leader = self._first()
        placed = [leader]
        index = self._offset
        skip: int | None = first_rack
        while len(placed) < replicas:
            if index == skip:
                skip = None  # the leader's rack is skipped once: it already has a replica
            else:
                broker = self._racks[index].next(self._round)
                if broker is not None:
                    placed.append(broker)
            index = (index + 1) % len(self._racks)
        self._round += 1
        self._offset = (self._offset + 1) % len(self._racks)
        return placed

    def _first(self) -> tuple[int, int]:
        index = self._offset
        while True:
            broker = self._racks[index].unfenced.next(self._round)
            if broker is not None:
                return index, broker
            index = (index + 1) % len(self._racks)


def place(brokers: Iterable[UsableBroker], *, partitions: int, replicas: int, random: Randomness) -> list[list[int]]:
    """Return the replicas of each of ``partitions`` new partitions, preferred leader first.

    Raises KafkaError(INVALID_REPLICATION_FACTOR) if there are too few brokers for that many replicas.
    """
    usable = sorted(brokers, key=lambda broker: broker.id)
    if replicas <= 0:
        raise _impossible(replicas, "a replication factor must be positive")
    if all(broker.fenced for broker in usable):
        raise _impossible(replicas, "every broker is fenced, or has cordoned all its log directories")
    if replicas > len(usable):
        raise _impossible(replicas, f"only {len(usable)} broker(s) can take replicas")
    stripes = _Stripes(usable, random)
    return [stripes.place(replicas) for _ in range(partitions)]


def _impossible(replicas: int, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"Cannot place {replicas} replica(s): {why}.")


def check_assignment(brokers: Container[int], replicas: Sequence[int], expected: int | None = None) -> None:
    """Check replicas named by a user: registered brokers, each once, ``expected`` of them.

    Raises KafkaError(INVALID_REPLICA_ASSIGNMENT).
    """
    if not replicas:
        raise bad_assignment("a partition has no replica")
    for broker in sorted(replicas):
        if broker not in brokers:
            raise bad_assignment(f"broker {broker} is not registered")
    if len(set(replicas)) < len(replicas):
        raise bad_assignment("a partition has two replicas on one broker")
    if expected is not None and len(replicas) != expected:
        raise bad_assignment(f"a partition has {len(replicas)} replica(s), others have {expected}")


def bad_assignment(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment is invalid: {why}.")
