"""A table of one document: what it proposes beside what it replaces and rejects, measured in runs of scenarios.

A file is ``milena/lab/scenarios/comparing/<id>.yaml``::

    id, title, document, note
    columns: [lost, ...]           see ``COLUMNS``
    rows:
      - case, name                 the situation, and what is measured in it
        scenario, variant
        expect: {lost: 3}          by column; a column that is left out is not compared
    remarks: [...]                 what the document says and the numbers do not confirm: text
    elsewhere: [...]               what is considered and not run, and why: text
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, TypeAlias

import yaml

from milena.command_line.options import nearest
from milena.lab.scenarios.comparing.tier_measures import TIER_COLUMNS
from milena.lab.scenarios.heads import PLAIN, SUFFIX
from milena.lab.scenarios.played import PlayedRun
from milena.lab.scenarios.script import BROKERS, Fields, Script, ScriptError, check_names, load

KEYS: Final = frozenset({"id", "title", "document", "note", "columns", "rows", "remarks", "elsewhere"})
ROW_KEYS: Final = frozenset({"case", "name", "scenario", "variant", "expect"})
PACKAGE: Final = "milena.lab.scenarios.comparing"
LEADER_EPOCH_ERRORS: Final = frozenset({"FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"})
ROUNDS: Final = "rounds"
"""The name of the trace whose requests are counted: a follower's questions before it truncates its log."""
BITS: Final = 8

Value: TypeAlias = int | float | str
Measure: TypeAlias = Callable[[PlayedRun], Value]


def _lost(run: PlayedRun) -> int:
    return len(run.steps[-1].lost) if run.steps else 0


def _refused_proposals(run: PlayedRun) -> int:
    return sum(event.times for event in run.events if event.api == "AlterPartition" and event.error)


def _refused_fetches(run: PlayedRun) -> int:
    return sum(
        event.times
        for event in run.events
        if event.api == "Fetch" and event.source in BROKERS and event.result in LEADER_EPOCH_ERRORS
    )


def _longest_write(run: PlayedRun) -> float:
    return round(max((step.longest_write for step in run.steps), default=0.0) * 1000, 1)


def _rounds(run: PlayedRun) -> Sequence[Mapping[str, Any]]:
    return next((step.traces[ROUNDS] for step in reversed(run.steps) if ROUNDS in step.traces), ())


def _bits(field: str) -> Measure:
    return lambda run: " + ".join(str(BITS * one[field]) for one in _rounds(run))


def _logs(run: PlayedRun) -> str:
    """Return where the logs of the first two replicas differ in the end."""
    replicas = [run.steps[-1].replicas[name].table.log or {} for name in run.script.replicas[:2]] if run.steps else []
    left, right = replicas or ({}, {})
    at = sorted(offset for offset in {*left, *right} if left.get(offset) != right.get(offset))
    return f"differ at {at[0]} to {at[-1]}" if at else "the same"


COLUMNS: Final[Mapping[str, Measure]] = {
    "lost records": _lost,
    "refused AlterPartitions": _refused_proposals,
    "refused fetches": _refused_fetches,
    "longest write, ms": _longest_write,
    "round trips": lambda run: len(_rounds(run)),
    "bits of requests": _bits("request_bytes"),
    "bits of responses": _bits("response_bytes"),
    "logs": _logs,
    **TIER_COLUMNS,
}
"""``refused fetches``: a follower's, of one partition, with FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH. ``longest
write``: until all in-sync replicas have the record. Bits are those of the encoded bodies, of each round."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """What is measured in one run."""

    case: str
    name: str
    script: Script
    expect: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class SideBySide:
    """A whole file."""

    id: str
    title: str
    document: str
    note: str
    columns: Sequence[str]
    rows: Sequence[TableRow]
    remarks: Sequence[str]
    elsewhere: Sequence[str]


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A row with the values of its run. ``failed``: why the run failed."""

    row: TableRow
    values: Mapping[str, Value]
    failed: str | None

    def wrong(self) -> list[str]:
        """Return the differences from the file's expectations, as text."""
        place = f"{self.row.case}, {self.row.name}"
        if self.failed is not None:
            return [f"{place}: {self.failed}"]
        return [
            f"{place}: {column} is {self.values[column]}, expected {expected}"
            for column, expected in self.row.expect.items()
            if self.values[column] != expected
        ]

    def fields(self) -> Fields:
        """Return the row as JSON values."""
        row = self.row
        return {
            "case": row.case,
            "name": row.name,
            "scenario": row.script.id,
            "variant": row.script.variant,
            "values": dict(self.values),
            "wrong": self.wrong(),
        }


def all_tables() -> list[str]:
    """Return the ids of all files."""
    names = (entry.name for entry in resources.files(PACKAGE).iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))


def load_table(name: str) -> SideBySide:
    """Load a table. Raises ScriptError."""
    known = all_tables()
    if name not in known:
        raise ScriptError(f"no comparison {name!r}{nearest(name, known)}; there are {', '.join(known)}")
    return table_of(yaml.safe_load(resources.files(PACKAGE).joinpath(name + SUFFIX).read_text(encoding="utf-8")))


def table_of(data: Fields) -> SideBySide:
    """Parse a file. Raises ScriptError."""
    name = data["id"]
    check_names(f"{name} has no", data, KEYS)
    check_names(f"{name}: no column", data["columns"], COLUMNS)
    rows = []
    for number, row in enumerate(data["rows"], 1):
        check_names(f"{name}, row {number} has no", row, ROW_KEYS)
        expect = row.get("expect") or {}
        check_names(f"{name}, row {number}: no column", expect, data["columns"])
        rows.append(TableRow(row["case"], row["name"], load(row["scenario"], row.get("variant", PLAIN)), expect))
    texts = [tuple(" ".join(one.split()) for one in data.get(key, ())) for key in ("remarks", "elsewhere")]
    note = " ".join(str(data.get("note", "")).split())
    return SideBySide(name, data["title"], data["document"], note, tuple(data["columns"]), rows, *texts)


def measured(table: SideBySide, row: TableRow, run: PlayedRun) -> MeasuredRow:
    """Return the values of a run."""
    failed = None if run.passed else (run.wrong or run.error or "it has not finished")
    return MeasuredRow(row, {column: COLUMNS[column](run) for column in table.columns}, failed)
