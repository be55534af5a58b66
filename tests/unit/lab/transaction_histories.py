"""Random valid histories of transactions, from a small model of a broker: logs, a last stable offset, one coordinator
and one group."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from milena.lab.histories.events import Event, RequestOutcome
from milena.lab.histories.transactions.events import (
    CommittedPoll,
    FinalCommitted,
    FinalOffset,
    ProducerInit,
    TransactionalSend,
    TransactionBegin,
    TransactionEnd,
    TransactionOffsets,
)

OK, FAILED, UNKNOWN = RequestOutcome.OK, RequestOutcome.FAILED, RequestOutcome.UNKNOWN
INPUT = ("in", 0)
OUTPUTS = (("out", 0), ("out", 1))
GROUP = "transformers"


@dataclass
class Open:
    """An open transaction. ``next``: the input offset that it commits; -1 for none."""

    name: str
    producer: str
    next: int = -1
    writes: int = 0


@dataclass
class Model:
    """A cluster that keeps every promise. An entry of a log is (value, transaction); a marker has no value."""

    random: Random
    time: float = 0.0
    events: list[Event] = field(default_factory=list)
    logs: dict[tuple[str, int], list[tuple[str, str]]] = field(
        default_factory=lambda: {place: [] for place in (INPUT, *OUTPUTS)}
    )
    state: dict[str, str] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)
    """The newest producer of each transactional id."""
    opened: dict[str, Open] = field(default_factory=dict)
    """The transaction of each producer."""
    positions: dict[tuple[str, tuple[str, int]], int] = field(default_factory=dict)
    committed: int = -1
    count: int = 0

    def now(self) -> float:
        self.time += 1.0
        return self.time

    def number(self) -> int:
        self.count += 1
        return self.count

    def init(self, name: str) -> str:
        """Initialize a new producer: the transaction of the former one is aborted."""
        begun, producer = self.now(), f"{name}, {self.number()}"
        former = self.opened.get(self.current.get(name, ""))
        if former is not None and self.state[former.name] == "open":
            self.finish(former, commit=False)
        self.current[name] = producer
        self.events.append(ProducerInit(name, producer, begun, self.now()))
        return producer

    def is_fenced(self, producer: str) -> bool:
        return self.current[producer.partition(",")[0]] != producer

    def begin(self, producer: str) -> Open:
        one = self.opened[producer] = Open(f"transaction {self.number()}", producer)
        self.state[one.name] = "open"
        self.events.append(TransactionBegin(one.name, producer, self.now()))
        return one

    def send(self, one: Open, place: tuple[str, int]) -> None:
        begun, value = self.now(), f"v{self.number()}"
        outcome, offset = FAILED, -1
        if not self.is_fenced(one.producer):
            outcome, offset = OK, len(self.logs[place])
            self.logs[place].append((value, one.name))
            one.writes += 1
        self.events.append(TransactionalSend(place, value, one.name, begun, self.now(), outcome, offset))

    def transform(self, one: Open) -> None:
        """Process some records of the input and write as many. One transaction at a time does so."""
        first = max(self.committed, 0)
        records = self.visible(INPUT, first)[: self.random.randrange(1, 4)]
        if not records or any(other.next >= 0 for other in self.opened.values()):
            return
        self.events.append(CommittedPoll(INPUT, one.name, self.now(), tuple(records), one.name))
        for _ in records:
            self.send(one, self.random.choice(OUTPUTS))
        one.next = records[-1][0] + 1
        self.events.append(TransactionOffsets(one.name, GROUP, INPUT, first, one.next))

    def end(self, one: Open, *, commit: bool) -> None:
        begun, outcome = self.now(), self.random.choice((OK, OK, UNKNOWN))
        if self.is_fenced(one.producer):
            outcome, one.next = FAILED, -1
        elif outcome is OK or self.random.random() < 0.5:
            self.finish(one, commit=commit)
        else:
            self.finish(one, commit=False)  # the request was lost, and the transaction timed out
        del self.opened[one.producer]
        self.events.append(TransactionEnd(one.name, commit, begun, self.now(), outcome))

    def finish(self, one: Open, *, commit: bool) -> None:
        self.state[one.name] = "committed" if commit else "aborted"
        for log in self.logs.values():
            if any(name == one.name for _, name in log):
                log.append(("", one.name))
        if commit and one.next >= 0:
            self.committed = one.next
        one.next = -1

    def last_stable(self, place: tuple[str, int]) -> int:
        log = self.logs[place]
        return next((at for at, (_, name) in enumerate(log) if self.state[name] == "open"), len(log))

    def visible(self, place: tuple[str, int], start: int = 0) -> list[tuple[int, str]]:
        entries = list(enumerate(self.logs[place]))[start : self.last_stable(place)]
        return [(at, value) for at, (value, name) in entries if value and self.state[name] == "committed"]

    def poll(self, reader: str, place: tuple[str, int]) -> None:
        start = self.positions.get((reader, place), 0)
        records = self.visible(place, start)[: self.random.randrange(1, 6)]
        if records:
            self.positions[reader, place] = records[-1][0] + 1
        self.events.append(CommittedPoll(place, reader, self.now(), tuple(records)))

    def close(self) -> None:
        for one in list(self.opened.values()):
            if self.state[one.name] == "open":
                self.finish(one, commit=False)
        for place, log in self.logs.items():
            assert self.last_stable(place) == len(log)
            self.events.append(FinalCommitted(place, tuple(self.visible(place)), len(log), len(log)))
        self.events.append(FinalOffset(GROUP, INPUT, self.committed))


def valid(seed: int, steps: int = 200) -> list[Event]:
    """Three transactional ids, whose producers are replaced now and then and do not notice."""
    random = Random(seed)
    model = Model(random)
    producers = [model.init(name) for name in ("a", "b", "c")]
    for _ in range(steps):
        number = random.randrange(10)
        if number == 0:
            producers.append(model.init(random.choice("abc")))
        elif number < 3:
            model.poll(random.choice(("r", "s")), random.choice((INPUT, *OUTPUTS)))
        else:
            producer = random.choice(producers[-4:])
            one = model.opened.get(producer)
            if one is None:
                model.begin(producer)
            elif number < 5:
                model.end(one, commit=random.random() < 0.8)
            elif number < 8 and not one.writes and not model.is_fenced(producer):
                model.transform(one)
            else:
                model.send(one, random.choice((INPUT, *OUTPUTS)))
    model.close()
    return model.events
