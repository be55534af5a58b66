"""`milena scenario run --jobs N` runs scenarios at a time, and shows what a run in simulation shows."""

from __future__ import annotations

import json
from typing import Any

from tests.wire.command import milena

SCENARIOS = ("kip279_unclean", "kip903_wire")


def compared_rows(run: dict[str, Any]) -> list[Any]:
    """Return the tables of each step, without the rows that the scenario does not check."""
    return [
        [(table["name"], [row for row in table["rows"] if row["mark"] != "unchecked"]) for table in step["tables"]]
        for step in run["steps"]
    ]


def test_scenarios_on_processes_have_the_tables_of_the_simulation_in_the_order_of_the_command() -> None:
    on_processes = milena("scenario", "run", *SCENARIOS, "--on", "processes", "--jobs", "2", "--json")
    found = json.loads(on_processes.out)
    simulated = json.loads(milena("scenario", "run", *SCENARIOS, "--json").out)
    assert [one["run"]["scenario"] for one in found] == list(SCENARIOS)
    for one, other in zip(found, simulated, strict=True):
        assert one["outcome"] == other["outcome"] == "passed"
        assert compared_rows(one["run"]) == compared_rows(other["run"])
