"""A step after its run, and a whole run: events, expected and actual state. Text, ``--json`` and pages show them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from milena.lab.scenarios.events import Event, EventKind
from milena.lab.scenarios.remote import RemoteSegment
from milena.lab.scenarios.script import Script
from milena.lab.scenarios.tables import DrawnTable, Log, Mark, Table, columns_of, side_by_side

REPLICA: Final = "replica"


class Check(NamedTuple):
    """An expectation that is not drawn as a table."""

    text: str
    wrong: str | None = None


class ReplicaState(NamedTuple):
    """A replica at the end of a step: its table in the document's epochs, and what its broker says of it."""

    table: Table
    described: Mapping[str, Any]

    def as_json(self) -> dict[str, object]:
        """Return the replica as JSON values; a broker that has never known the partition has no bounds."""
        described = self.described
        return {
            "stopped": self.table.stopped,
            "role": None if self.table.stopped else described.get("role"),
            "log": _log(self.table.log or {}),
            "epochs": _epochs(self.table.epochs or {}),
            "log_start": described.get("log_start_offset"),
            "local_log_start": described.get("local_log_start_offset"),
            "high_watermark": described.get("high_watermark"),
            "log_end": described.get("log_end_offset"),
            "in_isr": self.table.in_isr,
            "state": self.table.state,
        }


class NamedSegment(NamedTuple):
    """A segment in the tier, with its name in the document or its id."""

    partition: str
    name: str
    segment: RemoteSegment

    def as_json(self) -> dict[str, object]:
        """Return the segment as JSON values."""
        segment = self.segment
        return {
            "partition": self.partition,
            "name": self.name,
            "first": segment.start,
            "last": segment.end,
            "epochs": _epochs(segment.epochs),
            "log": _log(segment.log),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedStep:
    """One step of a run."""

    place: str
    """The scenario, the variant and the step."""
    number: int
    title: str
    quote: str | None
    """The document's sentence about the step."""
    seconds: float
    """On the scenario's clock, since the start of the run."""
    events: Sequence[Event]
    tables: Sequence[DrawnTable]
    replicas: Mapping[str, ReplicaState]
    """The last state of all replicas (``A``, ``A/u-1``)."""
    segments: Sequence[NamedSegment]
    """The content of the tier at the end of the step."""
    checks: Sequence[Check]
    lost: Sequence[str]
    """Values that were acknowledged with acks=all and are missing in the leader's log."""
    traces: Mapping[str, Sequence[Mapping[str, Any]]]
    """The exchanges that the step compares, with the sizes of their messages."""
    longest_write: float
    """Seconds until the step's slowest record was acknowledged by all in-sync replicas; 0 without one."""
    epochs: Mapping[int, int]
    """The document's leader epochs, and those of this run."""
    wrong: str | None = None
    """The first difference; None if the step passed."""

    def drawn_replicas(self) -> str:
        """Return all replicas as lines."""
        columns = {name: replica.table.lines() for name, replica in self.replicas.items()}
        return side_by_side(columns) if columns else ""

    def compared(self) -> str:
        """Return each replica, and each part of the tier, as expected and as found."""
        replicas = [table for table in self.tables if table.kind == REPLICA]
        tier = [table for table in self.tables if table.kind != REPLICA]
        drawn = [side_by_side(columns_of(tables)) for tables in (replicas, tier) if tables]
        reasons = {row.reason: None for table in self.tables for row in table.rows if row.mark is Mark.ACCEPTED}
        return "\n\n".join([*drawn, *(f"(*) {reason}" for reason in reasons)])

    def as_json(self) -> dict[str, object]:
        """Return the step as JSON values."""
        return {
            "number": self.number,
            "title": self.title,
            "quote": self.quote,
            "seconds": round(self.seconds, 6),
            "actions": [event.text for event in self.events if event.kind is EventKind.ACTION],
            "events": [event.as_json() for event in self.events],
            "tables": [
                {"name": name, "kind": kind, "rows": [row._asdict() | {"mark": row.mark.value} for row in rows]}
                for name, kind, rows in self.tables
            ],
            "replicas": {name: replica.as_json() for name, replica in self.replicas.items()},
            "segments": [segment.as_json() for segment in self.segments],
            "checks": [check._asdict() for check in self.checks],
            "lost": list(self.lost),
            "longest_write": round(self.longest_write, 6),
            "wrong": self.wrong,
        }


@dataclass(slots=True)
class PlayedRun:
    """A run of a scenario in one world, filled step by step."""

    script: Script
    world: str
    steps: list[PlayedStep] = field(default_factory=list)
    error: str | None = None
    """Why the run failed, if no step did."""

    @property
    def events(self) -> Iterator[Event]:
        """The events of all steps."""
        return (event for step in self.steps for event in step.events)

    @property
    def passed(self) -> bool:
        """Whether all steps have passed."""
        return self.error is None and len(self.steps) == len(self.script.steps) and self.wrong is None

    @property
    def wrong(self) -> str | None:
        """The differences of the step that failed."""
        return next((step.wrong for step in self.steps if step.wrong is not None), None)

    @property
    def conclusion(self) -> str | None:
        """What a control experiment has shown: the prediction of the scenario, which its steps have verified."""
        if self.script.conclusion is None or not self.passed:
            return None
        return f"control: {self.script.conclusion}, as predicted"

    @property
    def epochs(self) -> Mapping[int, int]:
        """The document's leader epochs, and those of this run."""
        return self.steps[-1].epochs if self.steps else {}

    def as_json(self) -> dict[str, object]:
        """Return the run as JSON values."""
        script = self.script
        return {
            "scenario": script.id,
            "variant": script.variant,
            "title": script.title,
            "document": script.document,
            "note": script.note,
            "world": self.world,
            "outcome": "passed" if self.passed else "failed",
            "conclusion": self.conclusion,
            "epochs": {str(document): run for document, run in self.epochs.items()},
            "error": self.error,
            "steps": [step.as_json() for step in self.steps],
        }


def epochs_sentence(epochs: Mapping[int, int]) -> str:
    """Return the sentence about leader epochs that have other numbers in the run; empty if there are none."""
    others = [f"LE-{document} is leader epoch {run}" for document, run in epochs.items() if document != run]
    return f"{', '.join(others)} in this run" if others else ""


def _log(log: Log) -> list[list[object]]:
    return [[offset, value, epoch] for offset, (value, epoch) in sorted(log.items())]


def _epochs(epochs: Mapping[int, int]) -> list[list[int]]:
    return [[epoch, start] for epoch, start in sorted(epochs.items())]


Watch: TypeAlias = Callable[[PlayedStep], object]
"""Called with each step after its run, including a failed one."""
