"""Two reports on one plan become one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.side_by_side import main, tables


def report(place: str, *faults: tuple[str, int, float, float], lost: int = 0) -> dict[str, Any]:
    """What ``report.json`` holds, as far as the table needs it."""
    kinds = [dict(zip(("kind", "times", "median", "worst"), fault, strict=True)) for fault in faults]
    return {
        "about": {"place": place},
        "verdict": "failed" if lost else "passed",
        "anomalies": {"lost write": lost, "aborted read": None},
        "operations": [
            {"operation": "write", "outcome": "ok", "count": 1200},
            {"operation": "write", "outcome": "unknown", "count": 3},
            {"operation": "poll", "outcome": "ok", "count": 40},
        ],
        "faults": kinds,
        "over time": {"width": 2, "unavailable": [0, 3, 1]},
    }


def test_kinds_of_both_runs_stand_beside_each_other() -> None:
    ours = report("processes", ("kill", 4, 0.52, 1.04), ("wipe", 1, 0.05, 0.05))
    theirs = report("kafka", ("kill", 4, 3.14, 9.0), ("stop", 2, 2.0, 3.0), lost=2)
    assert list(tables(ours, theirs)) == [
        "| | processes | kafka |",
        "|---|---|---|",
        "| verdict | passed | failed |",
        "| anomalies | 0 | 2 |",
        "| acknowledged writes | 1,200 | 1,200 |",
        "| operations | 1,243 | 1,243 |",
        "| faults injected | 5 | 6 |",
        "| seconds without a write, over all partitions (at most) | 8 | 8 |",
        "",
        "| fault | times, processes | median, processes | worst, processes "
        "| times, kafka | median, kafka | worst, kafka |",
        "|---|---|---|---|---|---|---|",
        "| kill | 4 | 0.5 s | 1.0 s | 4 | 3.1 s | 9.0 s |",
        "| wipe | 1 | below 0.1 s | below 0.1 s | 0 |  |  |",
        "| stop | 0 |  |  | 2 | 2.0 s | 3.0 s |",
    ]


def test_a_folder_without_a_report_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "report.json").write_text(json.dumps(report("processes")))
    assert main([str(whole), str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("no report of a run: ")
    assert main([str(whole)]) == 2
