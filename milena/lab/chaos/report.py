"""The report on a run: ``report.json``, and ``report.html`` with the same as tables and plots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from milena.lab.histories.anomalies import Anomaly, Violation, counts
from milena.lab.histories.files import HistoryFile
from milena.lab.histories.parts import DEFAULT, Demands

SHOWN = 200
"""Violations that a report lists in full."""


def write_report(
    folder: Path, history: Path, about: Mapping[str, object], demands: Demands = DEFAULT
) -> list[Violation]:
    """Judge a history on disk and write the report on it to a folder, which is made if need be. ``about``: what the
    reader should know of the run, as JSON: place, seed, versions, duration, clients, settings. Returns the verdict.

    Raises OSError, BadLine.
    """
    file = HistoryFile(history)
    violations = [violation for judge in file.judged(demands) for violation in judge.finish()]
    found = counts(violations)
    report = {
        "about": dict(about),
        "events": file.events,
        "cut off": file.cut_off,
        "anomalies": {anomaly.value: found.get(anomaly, 0) for anomaly in Anomaly},
        "violations": [str(violation) for violation in violations[:SHOWN]],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return violations
