"""`milena history`: check the history of client operations in a file, and plot it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from milena.command_line.errors import UsageError, UserError, reason_of
from milena.command_line.options import CommandLine, Option, Positional, chosen
from milena.lab.histories.anomalies import Violation
from milena.lab.histories.files import NOTHING, BadLine, HistoryFile, violations_of
from milena.lab.histories.parts import Demands, Judge
from milena.lab.histories.progress import PATIENCE

MOST = 100
FILE = Positional("FILE", "a history, one JSON object per line, as `milena sim --history` and `milena chaos` write it")
DEMANDS = [
    Option("--promised", "treat acks=1 writes to this topic like acks=all", "TOPIC", many=True),
    Option(
        "--patience", "seconds without progress that are not an anomaly", "SECONDS", default=PATIENCE, convert=float
    ),
]
CHECK = CommandLine(
    "history check",
    "Judge a history of client operations and explain each anomaly. The exit code is 1 if there is any except `sent "
    "again` and `write cycle`.",
    DEMANDS,
    [FILE],
    ["milena sim --seed 7 --history run.jsonl > /dev/null; milena history check run.jsonl"],
)
REPORT = CommandLine(
    "history report",
    "Judge a history and write report.json and report.html, which needs no network. The exit code is 1 if there is an "
    "anomaly except `sent again` and `write cycle`.",
    [
        Option("--out", "the folder for both files", "DIR", default="."),
        Option(
            "--about",
            "an earlier report.json of the run, or its run.json, whose description of the run is included",
            "FILE",
        ),
        *DEMANDS,
    ],
    [FILE],
    ["milena history report chaos/history.jsonl --about chaos/report.json --out again"],
)


def main(arguments: Sequence[str]) -> int:
    """Return the exit code. Raises UserError."""
    meant = chosen("history", {"check": (CHECK, _check), "report": (REPORT, _report)}, arguments)
    if meant is None:
        return 0
    body, values = meant
    if not values.patience >= 0:
        raise UsageError(f"--patience {values.patience:g}: not a number of seconds")
    demands = Demands(frozenset(values.promised), values.patience)
    try:
        if body is _check:
            return _check(Path(values.file), demands)
        return _report(Path(values.file), demands, Path(values.out), values.about)
    except BadLine as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(reason_of(error)) from None


def _check(path: Path, demands: Demands) -> int:
    history = HistoryFile(path)
    if not history.parts:
        raise UserError(f"{path}: {NOTHING}")
    if history.cut_off is not None:
        print(f"line {history.cut_off} is incomplete and ignored")
    found = 0
    fails = False
    for violations, texts in history.each(_judged, demands):
        for text in texts:
            print(text)
        for violation in violations:
            found += 1
            fails = fails or violation.fails
            if found <= MOST:
                print(violation)
    if found > MOST:
        print(f"and {found - MOST} more")
    print(f"{history.events} events: {found or 'no'} anomal{'y' if found == 1 else 'ies'}")
    return 1 if fails else 0


def _judged(judge: Judge) -> tuple[list[Violation], list[str]]:
    """Return the violations in a part, and lines that say what was not judged because no client tried or the machine
    stalled."""
    kinds = Counter(one.fault.kind.value for one in judge.unjudged() if one.untried)
    untried = [
        f"not judged: {judge.part}: no client tried to write for long enough during {kind}, {count} times"
        for kind, count in kinds.items()
    ]
    violations = violations_of(judge)
    return violations, [*untried, *map(str, judge.not_judged())]


def _report(path: Path, demands: Demands, folder: Path, about: str | None) -> int:
    from milena.lab.chaos.reporting.report import write_report

    found = write_report(folder, path, _about(about), demands)
    print(f"{len(found) or 'no'} anomal{'y' if len(found) == 1 else 'ies'}; {folder / 'report.html'}")
    return 1 if any(violation.fails for violation in found) else 0


def _about(path: str | None) -> Mapping[str, object]:
    if path is None:
        return {}
    try:
        found = json.loads(Path(path).read_bytes())
        about = found["about"] if "about" in found or "place" not in found else found
    except (ValueError, TypeError, KeyError):
        about = None
    if not isinstance(about, dict):
        raise UserError(f"{path}: neither a report.json nor a run.json")
    return about
