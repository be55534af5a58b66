"""The page of one run of a scenario, or of a comparison of algorithms."""

from __future__ import annotations

from milena.commands.scenario.showing import case_lines, results_columns, series_columns
from milena.lab.scenarios.comparing.cases import Comparison
from milena.lab.scenarios.comparing.runs import Compared, Outcome
from milena.lab.scenarios.played import PlayedRun
from milena.report.contents import Section, Table
from milena.report.embedded import embedded
from milena.report.page import page


def page_of_run(run: PlayedRun) -> str:
    """Return the page of a scenario's run, step by step."""
    return embedded(f"{run.script.id}: {run.script.title}", "scenario.js", {"scenario-run": run.as_json()})


def page_of_outcome(comparison: Comparison, outcome: Outcome) -> str:
    """Return the page of a comparison: a table for each case."""
    wrong = outcome.wrong(comparison)
    sections: list[Section] = []
    for one in outcome.cases:
        sections += _case(one)
    sections.append(_table(comparison.longer_title, series_columns(outcome.longer, comparison.longer)))
    if wrong:
        sections.insert(0, Table("Differences", ("difference",), [(reason,) for reason in wrong]))
    verdict = f"{len(wrong)} differences from the expected results" if wrong else "as expected"
    return page(f"{comparison.id}: {comparison.title}", verdict, sections, good=not wrong)


def _case(compared: Compared) -> list[Section]:
    title, *logs = case_lines(compared.case)
    exchanges = [(name, one) for name, result in compared.results.items() for one in result.exchanges]
    return [
        _table(title, results_columns(compared), "; ".join(" ".join(line.split()) for line in logs)),
        Table(f"Requests of {compared.case.name}", ("algorithm", "request and answer"), exchanges, folded=True),
    ]


def _table(title: str, columns: dict[str, list[str]], note: str = "") -> Table:
    return Table(title, list(columns), list(zip(*columns.values(), strict=True)), note)
