"""The parts of a history, which are checked independently: each partition, each group, all topics together, and all
transactions together.

``part_of`` returns the part of an event, ``is_shared`` whether other parts need the event, too: faults, voids and topic
changes, of which there are few. So a history can be split, and its parts checked in any order and in different
processes: ``judge`` is a pure function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from milena.lab.histories.anomalies import Anomaly, Violation
from milena.lab.histories.copies import Copies
from milena.lab.histories.events import (
    AllowedDeletion,
    AllTopics,
    Event,
    FinalLog,
    FinalTopic,
    Hole,
    Invoke,
    Poll,
    Send,
    TopicChange,
    Void,
)
from milena.lab.histories.faults import Fault
from milena.lab.histories.group_events import Expiry, Settled, Trouble
from milena.lab.histories.groups import GroupRules
from milena.lab.histories.keyed import FullRead, KeyedWrite
from milena.lab.histories.machine import MachineStall, SessionTimeout
from milena.lab.histories.metadata import MetadataRules
from milena.lab.histories.partitions import PartitionRules
from milena.lab.histories.progress import PATIENCE, Stall, Unjudged
from milena.lab.histories.seen import BrokerSeen, PartitionSeen
from milena.lab.histories.transactions.events import TransactionEvent
from milena.lab.histories.transactions.rules import TransactionRules

PARTITION: Final = "partition"
TOPICS: Final = "topics"
GROUP: Final = "group"
TRANSACTIONS: Final = "transactions"
KINDS: Final = (PARTITION, TOPICS, GROUP, TRANSACTIONS)


class Part(NamedTuple):
    """A part. ``name`` is that of the topic or group, ``number`` that of the partition."""

    kind: str
    name: str = ""
    number: int = 0

    @property
    def sort_key(self) -> tuple[int, str, int]:
        """The order of parts in reports."""
        return KINDS.index(self.kind), self.name, self.number

    def __str__(self) -> str:
        return f"{self.name}-{self.number}" if self.kind == PARTITION else self.name or self.kind


@dataclass(frozen=True, slots=True)
class Demands:
    """The checker's options. ``promised``: topics whose acknowledged writes must all stay, also with acks=1 and in
    spite of a ``Void``. ``patience``: tolerated seconds without progress (``progress``)."""

    promised: frozenset[str] = frozenset()
    patience: float = PATIENCE


DEFAULT: Final = Demands()


def part_of(event: Event) -> Part | None:
    """Return the part of an event; None if it does not belong to a single part."""
    match event:
        case Send() | Poll() | KeyedWrite() | FullRead() | Void() | AllowedDeletion() | Hole() | FinalLog() | Copies():
            return Part(PARTITION, *event.partition)
        case TopicChange() | FinalTopic() | AllTopics():
            return Part(TOPICS)
        case (
            Invoke()
            | Fault()
            | MachineStall()
            | SessionTimeout()
            | PartitionSeen()
            | BrokerSeen()
            | Trouble()
            | Settled()
            | Expiry()
        ):
            return None
        case _:
            return Part(TRANSACTIONS) if isinstance(event, TransactionEvent) else Part(GROUP, event.group)


def is_shared(event: Event) -> bool:
    """Whether other parts than its own need the event."""
    return isinstance(event, Void | Fault | MachineStall | Trouble | Settled | Expiry | TopicChange)


class Judge:
    """Checks one part: takes its events in order, and the shared events at any position among them."""

    def __init__(self, part: Part, demands: Demands = DEFAULT) -> None:
        promised = part.kind == PARTITION and part.name in demands.promised
        self._part = part
        self._rules: PartitionRules | MetadataRules | GroupRules | TransactionRules
        if part.kind == PARTITION:
            self._rules = PartitionRules((part.name, part.number), demands.patience, promised=promised)
        elif part.kind == TOPICS:
            self._rules = MetadataRules()
        elif part.kind == TRANSACTIONS:
            self._rules = TransactionRules()
        else:
            self._rules = GroupRules(part.name, demands.patience)

    def add(self, event: Event) -> None:
        self._rules.add(event)

    def stalls(self, seconds: float) -> Iterator[Stall]:
        """Yield the times, longer than ``seconds``, in which writes to a partition waited and none was acknowledged."""
        return self._rules.writes.longer_than(seconds) if isinstance(self._rules, PartitionRules) else iter(())

    def unjudged(self) -> Iterator[Unjudged]:
        """Yield the faults for which the progress of a partition could not be checked, since no client tried to write
        for long enough."""
        return self._rules.unjudged() if isinstance(self._rules, PartitionRules) else iter(())

    def doomed(self) -> Iterator[str]:
        """Yield the values of acknowledged writes that must be lost (``Fault.doomed``)."""
        return self._rules.doomed() if isinstance(self._rules, PartitionRules) else iter(())

    @property
    def part(self) -> Part:
        return self._part

    def finish(self) -> Iterator[Violation]:
        """Yield the violations. Call once, after the last event."""
        for name, where, text in self._rules.violations():
            yield Violation(Anomaly(name), where, text)

    def not_judged(self) -> Iterator[Violation]:
        """Yield lacks of progress that are not violations because the machine stalled. Call it after ``finish``."""
        if not isinstance(self._rules, MetadataRules | TransactionRules):
            for lack in self._rules.not_judged:
                yield Violation(Anomaly(lack.anomaly), str(self._part), lack.reason)


def judge(part: Part, events: Iterable[Event], shared: Iterable[Event], demands: Demands = DEFAULT) -> list[Violation]:
    """Return the violations in one part of a history. ``events``: its events, in the order of the history; ``shared``:
    all shared events, in order."""
    one = Judge(part, demands)
    for event in shared:
        if part_of(event) != part:
            one.add(event)
    for event in events:
        one.add(event)
    return list(one.finish())
