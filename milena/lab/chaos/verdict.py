"""The verdict on the history of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from milena.lab.chaos.topics import Topic
from milena.lab.histories.anomalies import Anomaly, Violation
from milena.lab.histories.events import Event, RequestOutcome, Send
from milena.lab.histories.files import HistoryFile, violations_of
from milena.lab.histories.parts import Demands


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


def demands_of(topics: Sequence[Topic], *, unsafe: bool) -> Demands:
    """``unsafe``: what promises nothing is judged as if it did, so that the checker is seen to see."""
    return Demands(promised=frozenset(topic.name for topic in topics if topic.control and unsafe))


def judge(history: Path, topics: Sequence[Topic], *, unsafe: bool) -> Verdict:
    """Raises OSError, BadLine."""
    demands = demands_of(topics, unsafe=unsafe)
    writes = 0

    def seen(event: Event) -> None:
        nonlocal writes
        writes += isinstance(event, Send) and event.outcome is RequestOutcome.OK

    file = HistoryFile(history, seen)
    found = [violation for one in file.each(violations_of, demands) for violation in one]
    return verdict(found, demands.promised, writes)


def verdict(found: Sequence[Violation], controls: Collection[str], writes: int) -> Verdict:
    of_controls = [violation for violation in found if _topic(violation) in controls]
    lost = {_topic(one) for one in of_controls if one.anomaly is Anomaly.LOST_WRITE}
    return Verdict([one for one in found if one not in of_controls], of_controls, sorted(set(controls) - lost), writes)


def _topic(violation: Violation) -> str:
    return violation.where.rpartition("-")[0]
