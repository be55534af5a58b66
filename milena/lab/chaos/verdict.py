"""The verdict on the history of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from milena.lab.chaos.clients import Clients
from milena.lab.chaos.done import Done
from milena.lab.chaos.faults import Kind
from milena.lab.chaos.reporting.figures import library_of
from milena.lab.chaos.topics import Topic
from milena.lab.histories.anomalies import Anomaly, Violation
from milena.lab.histories.files import HistoryFile, violations_of
from milena.lab.histories.machine import total
from milena.lab.histories.parts import Demands, Judge


@dataclass(frozen=True, slots=True)
class Verdict:
    """``violations`` of what was promised. ``controls``: what was found where nothing is promised, which an unsafe run
    is to show."""

    violations: Sequence[Violation]
    controls: Sequence[Violation]
    blind: Sequence[str]
    """Topics without promises in which an unsafe run has lost nothing, or has not seen it; and ``CLIENT in TOPIC``,
    where a client had writes acknowledged that must have been lost (``Fault.doomed``), and none of them was missed."""
    writes: int
    """Those that were acknowledged."""
    idle: Sequence[str] = ()
    """What there was nothing of, for people: such a run says little, whatever was found."""
    losses: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of each topic without promises: how many writes of each client were lost; 0 for one that lost none."""
    not_judged: Sequence[Violation] = ()
    """Lack of progress that does not count because the machine stalled."""
    stalled: float = 0.0
    """Seconds for which the machine stalled."""
    timeouts: int = 0
    """Session timeouts of brokers that no fault explains."""


def demands_of(topics: Sequence[Topic], *, unsafe: bool) -> Demands:
    """``unsafe``: what promises nothing is judged as if it did, so that the checker is seen to see."""
    return Demands(promised=frozenset(topic.name for topic in topics if topic.control and unsafe))


def judge(history: Path, topics: Sequence[Topic], *, unsafe: bool, libraries: Sequence[Clients] = ()) -> Verdict:
    """``libraries``: those that were to work. Raises OSError, BadLine."""
    demands = demands_of(topics, unsafe=unsafe)
    done, gathered = Done(), Gathered()
    file = HistoryFile(history, done.add)
    for _ in file.each(gathered.add, demands):
        pass
    names = [library.name for library in libraries if "produce" in library.can]
    found = verdict(gathered.violations, demands.promised, done.writes, gathered.doomed, names)
    return replace(
        found,
        idle=[*done.idle(libraries, topics), *gathered.untried()],
        not_judged=gathered.not_judged,
        stalled=total(done.stalls),
        timeouts=done.timeouts,
    )


class Gathered:
    """What the judges of all parts say."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.not_judged: list[Violation] = []
        self.doomed: dict[str, list[str]] = {}
        """Of each topic: what was acknowledged and must have been lost."""
        self._untried: dict[Kind, set[str]] = {}

    def add(self, judge: Judge) -> None:
        self.violations += violations_of(judge)
        self.not_judged += judge.not_judged()
        self.doomed.setdefault(judge.part.name, []).extend(judge.doomed())
        for fault, untried in judge.unjudged():
            if untried:
                self._untried.setdefault(fault.kind, set()).add(str(judge.part))

    def untried(self) -> list[str]:
        """For people."""
        return [
            f"no client tried to write to {' and '.join(sorted(places))} while {kind.value} was to be judged"
            for kind, places in self._untried.items()
        ]


def verdict(
    found: Sequence[Violation],
    controls: Collection[str],
    writes: int,
    doomed: Mapping[str, Sequence[str]] = MappingProxyType({}),
    clients: Sequence[str] = (),
) -> Verdict:
    """``doomed``: as ``Gathered`` has it. ``clients``: those that write."""
    of_controls = [violation for violation in found if _topic(violation) in controls]
    lost: dict[str, list[str]] = {topic: [] for topic in sorted(controls)}
    for one in of_controls:
        if one.anomaly is Anomaly.LOST_WRITE:
            lost[_topic(one)].append(_value(one))
    blind = [topic for topic, values in lost.items() if not values]
    for topic, values in lost.items():
        stood_to_lose = {library_of(value) for value in doomed.get(topic, ())}
        seen = {library_of(value) for value in set(values) & set(doomed.get(topic, ()))}
        blind += [f"{client} in {topic}" for client in sorted(stood_to_lose - seen)]
    losses = {topic: dict.fromkeys(clients, 0) | Counter(map(library_of, values)) for topic, values in lost.items()}
    promised = [one for one in found if one not in of_controls]
    return Verdict(promised, of_controls, blind, writes, losses=losses)


def _topic(violation: Violation) -> str:
    return violation.where.rpartition("-")[0]


def _value(violation: Violation) -> str:
    """The value of a write that was lost: the text begins with it."""
    return violation.text.partition(" ")[0]
