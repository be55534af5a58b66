"""The verdict on the history of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from milena.lab.chaos.journal import complete, events
from milena.lab.chaos.topics import Topic
from milena.lab.histories.checker import Anomaly, Checker, Violation
from milena.lab.histories.events import ACKS_ALL, Event, Send


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


def judge(history: Path, topics: Sequence[Topic], *, unsafe: bool) -> Verdict:
    """``unsafe``: acks=1 is judged as if it were a promise, so that the checker is seen to see."""
    controls = {topic.name for topic in topics if topic.control} if unsafe else set()
    complete(history)
    checker = Checker()
    writes = 0
    for event in judged(events(history), controls):
        writes += isinstance(event, Send) and event.outcome.value == "ok"
        checker.add(event)
    found = checker.finish()
    of_controls = [violation for violation in found if _topic(violation) in controls]
    lost = {_topic(one) for one in of_controls if one.anomaly is Anomaly.LOST_WRITE}
    return Verdict([one for one in found if one not in of_controls], of_controls, sorted(controls - lost), writes)


def judged(history: Iterable[Event], controls: Collection[str]) -> Iterator[Event]:
    """The events as they are judged."""
    for event in history:
        if isinstance(event, Send) and event.partition[0] in controls:
            yield replace(event, acks=ACKS_ALL)
        else:
            yield event


def _topic(violation: Violation) -> str:
    return violation.where.rpartition("-")[0]
