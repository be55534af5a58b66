"""The verdict on the history of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from milena.lab.chaos.clients import Clients
from milena.lab.chaos.faults import Fault, Kind
from milena.lab.chaos.figures import library_of
from milena.lab.chaos.topics import Topic
from milena.lab.histories.anomalies import Anomaly, Violation
from milena.lab.histories.events import Event, Poll, RequestOutcome, Send
from milena.lab.histories.faults import Effect
from milena.lab.histories.files import HistoryFile, violations_of
from milena.lab.histories.group_events import OffsetCommit
from milena.lab.histories.parts import Demands

WORK: Final = {"produce": "written nothing", "consume": "read nothing", "group": "committed nothing"}
"""What a library can do, and what is said if it never did."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``violations`` of what was promised. ``controls``: what was found where nothing is promised, which an unsafe run
    is to show."""

    violations: Sequence[Violation]
    controls: Sequence[Violation]
    blind: Sequence[str]
    """Topics without promises in which an unsafe run has lost nothing, or has not seen it."""
    writes: int
    """Those that were acknowledged."""
    idle: Sequence[str] = ()
    """What there was nothing of, for people: such a run says little, whatever was found."""


def demands_of(topics: Sequence[Topic], *, unsafe: bool) -> Demands:
    """``unsafe``: what promises nothing is judged as if it did, so that the checker is seen to see."""
    return Demands(promised=frozenset(topic.name for topic in topics if topic.control and unsafe))


class Done:
    """What succeeded at least once, event by event: others' progress does not hide a library that never works."""

    def __init__(self) -> None:
        self.writes = 0
        self._effects: dict[Kind, list[Effect | None]] = {}
        self._done: set[tuple[str, str]] = set()

    def add(self, event: Event) -> None:
        match event:
            case Send(outcome=RequestOutcome.OK):
                self.writes += 1
                self._done.add((library_of(event.value), "produce"))
            case Poll() if event.records:
                self._done.add((library_of(event.session), "consume"))
            case OffsetCommit(outcome=RequestOutcome.OK):
                self._done.add((library_of(event.member), "group"))
            case Fault():
                self._effects.setdefault(event.kind, []).append(event.effect)
            case _:
                pass

    def idle(self, libraries: Sequence[Clients]) -> list[str]:
        found = [] if self._effects else ["no fault was injected"]
        for kind, effects in self._effects.items():
            if Effect.NOT_SEEN in effects and Effect.SEEN not in effects:
                found.append(f"{kind.value} was injected {len(effects)} times, and nobody has noticed it")
        for library in libraries:
            for what, text in WORK.items():
                if what in library.can and (library.name, what) not in self._done:
                    found.append(f"{library.name} has {text}")
        return found


def judge(history: Path, topics: Sequence[Topic], *, unsafe: bool, libraries: Sequence[Clients] = ()) -> Verdict:
    """``libraries``: those that were to work. Raises OSError, BadLine."""
    demands = demands_of(topics, unsafe=unsafe)
    done = Done()
    file = HistoryFile(history, done.add)
    found = [violation for one in file.each(violations_of, demands) for violation in one]
    return replace(verdict(found, demands.promised, done.writes), idle=done.idle(libraries))


def verdict(found: Sequence[Violation], controls: Collection[str], writes: int) -> Verdict:
    of_controls = [violation for violation in found if _topic(violation) in controls]
    lost = {_topic(one) for one in of_controls if one.anomaly is Anomaly.LOST_WRITE}
    return Verdict([one for one in found if one not in of_controls], of_controls, sorted(set(controls) - lost), writes)


def _topic(violation: Violation) -> str:
    return violation.where.rpartition("-")[0]
