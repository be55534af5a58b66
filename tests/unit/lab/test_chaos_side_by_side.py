"""The tables that compare two chaos runs, as in docs/internals/chaos.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from milena.lab.histories.anomalies import Anomaly
from tests.chaos.side_by_side import main, tables


def report(place: str, **about: object) -> dict[str, Any]:
    return {
        "about": {"place": place, "seed": 20, "seconds": 3600.0, "clients": ["milena", "java"], **about},
        "verdict": "passed",
        "operations": [
            {"operation": "write", "outcome": "ok", "count": 3000},
            {"operation": "write", "outcome": "unknown", "count": 7},
            {"operation": "poll", "outcome": "ok", "count": 100},
            {"operation": "commit of a transaction", "outcome": "ok", "count": 1200},
            {"operation": "commit of a transaction", "outcome": "unknown", "count": 8},
            {"operation": "abort", "outcome": "ok", "count": 90},
            {"operation": "write in a transaction", "outcome": "ok", "count": 5000},
        ],
        "anomalies": {one.value: 0 for one in Anomaly} | {Anomaly.EPOCH_ORDER.value: None},
        "controls": {},
        "faults": [
            {"kind": "kill", "times": 4, "seen": 3, "median": 2.04, "worst": 8.0},
            {"kind": "clock", "times": 1, "seen": 1, "median": 0.0, "worst": 0.0},
        ],
        "over time": {
            "width": 2,
            "writes": {},
            "reads": {"milena": [10.0, 20.0], "java": [0.0, 10.0]},
            "latency": {"p50": [0.001, None], "p99": [0.004, 0.006]},
            "unavailable": [0, 3],
        },
    }


def rows(left: dict[str, Any], right: dict[str, Any]) -> dict[str, list[str]]:
    """The cells of each row, by the first cell."""
    found = (line.strip("| ").split(" | ") for line in tables(left, right) if line.startswith("| "))
    return {first: cells for first, *cells in found}


def test_the_first_table_compares_totals_of_both_runs() -> None:
    found = rows(report("processes"), report("kafka"))
    assert found["verdict"] == ["passed", "passed"]
    assert found["acknowledged writes"] == ["3,000"] * 2
    assert found["acknowledged writes a second"] == ["750.0"] * 2
    assert found["records read a second"] == ["20.0"] * 2, "40 records a second in one of two slots"
    assert found["latency of writes in the median second: p50, p99"] == ["1.0 ms, 5.0 ms"] * 2
    assert found["of them seen"] == ["4"] * 2
    assert found["seconds without a write, over all partitions (at most)"] == ["6"] * 2


def test_the_first_table_counts_transactions_by_their_outcome() -> None:
    found = rows(report("processes"), report("kafka"))
    assert found["transactions: commits acknowledged, refused, of unknown outcome"] == ["1,200, 0, 8"] * 2
    assert found["transactions: aborts acknowledged, of unknown outcome"] == ["90, 0"] * 2
    assert found["records in transactions acknowledged"] == ["5,000"] * 2


def test_anomalies_are_in_jepsens_terms() -> None:
    left, right = report("processes"), report("kafka")
    right["anomalies"] |= {Anomaly.LOST_WRITE.value: 2, Anomaly.NO_WRITES.value: 1}
    left["controls"] = {Anomaly.LOST_WRITE.value: 17}
    found = rows(left, right)
    assert found["lost write"] == ["lost-write", "0; 17 where nothing is promised", "2"]
    assert found["no progress of writes"] == ["–", "0", "1"], "no term of Jepsen's, but it was found"
    assert found["aborted read"] == ["G1a", "0", "0"]
    others = len(Anomaly) - 13 - 1
    assert found[f"{others} others"] == ["–", "0; 1 not judged", "0; 1 not judged"]
    assert found["anomalies"] == ["0", "3"]


def test_each_kind_of_fault_has_its_outages_in_both_runs() -> None:
    left, right = report("processes"), report("kafka")
    del right["faults"][1]
    found = rows(left, right)
    assert found["kill"] == ["4", "3", "2.0 s", "8.0 s"] * 2
    assert found["clock"] == ["1", "1", "below 0.1 s", "below 0.1 s", "0", "–", "–", "–"]


def test_differing_plans_are_reported() -> None:
    both = report("processes", faults=["kill"]), report("kafka", faults=["kill"])
    assert not [line for line in tables(*both) if "differ" in line]
    both[1]["about"]["faults"] = ["kill", "clock"]
    assert "The plans differ, in faults." in tables(*both)


def test_every_row_has_as_many_cells_as_the_header() -> None:
    for table in "\n".join(tables(report("processes"), report("kafka"))).split("\n\n"):
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_a_folder_without_a_report_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report("processes")))
    assert main([str(tmp_path), str(tmp_path)]) == 0
    assert main([str(tmp_path), str(tmp_path / "none")]) == 1
    assert "no report of a run" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
