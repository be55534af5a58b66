"""The page of one run of a scenario, of a comparison of algorithms, or of tables with proposals and alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from milena.commands.scenario.showing import case_columns, case_lines, remarks, results_columns, series_columns
from milena.lab.scenarios.comparing.cases import Comparison
from milena.lab.scenarios.comparing.runs import Compared, Outcome
from milena.lab.scenarios.comparing.side_by_side import MeasuredRow, SideBySide
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


def page_of_tables(found: Sequence[tuple[SideBySide, Sequence[MeasuredRow]]]) -> str:
    """Return the page of `milena scenario compare`: a table for each case of each document."""
    wrong = [(one,) for _, rows in found for row in rows for one in row.wrong()]
    sections: list[Section] = [Table("Differences", ("difference",), wrong)] if wrong else []
    for table, rows in found:
        cases = [_table(f"{table.document}: {case}", columns) for case, columns in case_columns(table, rows)]
        sections += [replace(cases[0], note=table.note), *cases[1:]]
        for title, texts in remarks(table):
            sections.append(Table(f"{table.document}: {title}", ("remark",), [(text,) for text in texts]))
    title = found[0][0].title if len(found) == 1 else "What KIPs propose beside what they replace and reject"
    verdict = f"{len(wrong)} differences from the expected numbers" if wrong else "as expected"
    return page(title, verdict, sections, good=not wrong)


def _case(compared: Compared) -> list[Section]:
    title, *logs = case_lines(compared.case)
    exchanges = [(name, one) for name, result in compared.results.items() for one in result.exchanges]
    return [
        _table(title, results_columns(compared), "; ".join(" ".join(line.split()) for line in logs)),
        Table(f"Requests of {compared.case.name}", ("algorithm", "request and answer"), exchanges, folded=True),
    ]


def _table(title: str, columns: Mapping[str, Sequence[str]], note: str = "") -> Table:
    return Table(title, list(columns), list(zip(*columns.values(), strict=True)), note)
