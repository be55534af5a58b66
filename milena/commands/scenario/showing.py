"""Scenarios, and results of comparisons, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from milena.lab.scenarios.actions import action_line
from milena.lab.scenarios.comparing.algorithms import ALGORITHMS
from milena.lab.scenarios.comparing.cases import Case, Comparison
from milena.lab.scenarios.comparing.runs import Compared, Result
from milena.lab.scenarios.comparing.side_by_side import MeasuredRow, SideBySide
from milena.lab.scenarios.events import EventKind
from milena.lab.scenarios.played import PlayedStep
from milena.lab.scenarios.reading import IN_TIER
from milena.lab.scenarios.remote import expected_rows
from milena.lab.scenarios.script import Fields, Script, variants_of, worlds_of
from milena.lab.scenarios.tables import Table, side_by_side
from milena.lab.scenarios.vocabulary import OTHERS

WIDTH: Final = 100


def case_columns(table: SideBySide, rows: Sequence[MeasuredRow]) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Yield each case of a table of `milena scenario compare` with its columns."""
    for case, members in groupby(rows, key=lambda row: row.row.case):
        of_case = list(members)
        columns = {"": [row.row.name for row in of_case]}
        columns |= {column: [str(row.values[column]) for row in of_case] for column in table.columns}
        columns["scenario"] = [f"{row.row.script.id} ({row.row.script.variant})" for row in of_case]
        yield case, columns


def remarks(table: SideBySide) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the titles and sentences below a table."""
    for title, texts in (("What the numbers do not confirm", table.remarks), ("Not run", table.elsewhere)):
        if texts:
            yield title, texts


def described(data: Fields, script: Script) -> Iterator[str]:
    """Yield lines: the description of the scenario, then each step with its actions and expectations."""
    yield f"{script.id}: {script.title}"
    about = {
        "from": data.get("document"),
        "variants": ", ".join(variants_of(data)),
        "variant": script.variant,
        "played in": " and ".join(worlds_of(data)),
        "replicas": ", ".join(script.replicas),
        "brokers": ", ".join(script.brokers),
        "topic": _settings(script.config),
        "all nodes": _settings(script.nodes),
        "test peers": _settings(script.peers),
    }
    for name, value in about.items():
        if value:
            yield f"  {name + ':':<12}{value}"
    if note := data.get("note"):
        yield ""
        yield from textwrap.wrap(str(note), WIDTH)
    for number, step in enumerate(script.steps, 1):
        yield ""
        yield f"step {number}: {step.title}"
        yield from quoted(step.quote)
        for name, arguments in step.actions:
            yield f"  {action_line(name, arguments)}"
        for what, expected in (("before", step.before), ("expected", step.expect)):
            if expected:
                yield f"  {what}:"
                yield from (f"    {line}".rstrip() for line in _drawn(expected))
        for name, exchanges in step.exchanges.items():
            yield f"  the requests traced as {name}:"
            yield from (f"    {_exchange(one)}" for one in exchanges)


def _exchange(expected: object) -> str:
    """Return an expected exchange as one line, as in ``request: fetch_offset 0; response: error_code NONE``."""
    if not isinstance(expected, Mapping):
        return str(expected)
    return "; ".join(action_line(f"{part}:", fields) for part, fields in expected.items())


def step_lines(step: PlayedStep) -> Iterator[str]:
    """Yield the lines about a step after its run: the document's sentence, what happened, the tables, and what else was
    expected."""
    yield ""
    yield step.place
    yield from quoted(step.quote)
    for event in step.events:
        yield f"  > {event.line}" if event.kind is EventKind.ACTION else f"      {event.line}"
    if step.events:
        yield ""
    yield from (f"  {line}" for line in step.compared().splitlines())
    if step.wrong is not None:
        yield ""
        yield from (f"  wrong: {one}" for one in step.wrong.splitlines())
    elif step.checks:
        yield ""
        yield from (f"  as expected: {check.text}" for check in step.checks)


def quoted(quote: str | None) -> Iterator[str]:
    """Yield the lines of a sentence of the document."""
    if quote is not None:
        yield from textwrap.wrap(f'"{quote}"', WIDTH, initial_indent="  ", subsequent_indent="  ")


def described_comparison(data: Fields, comparison: Comparison) -> Iterator[str]:
    """Yield lines: the description, the logs of each case, and what is expected of each algorithm."""
    yield f"{comparison.id}: {comparison.title}"
    yield f"  {'from:':<12}{data.get('document', '')}"
    yield f"  {'played in:':<12}{' and '.join(worlds_of(data))}"
    yield ""
    yield from noted(comparison)
    for case in comparison.cases:
        yield ""
        yield from case_lines(case)
        for name, fields in case.expect.items():
            yield f"  {name}:"
            yield from (f"    {key}: {value}" for key, value in fields.items() if key != "exchanges")
            yield from (f"    {one}" for one in fields.get("exchanges", ()))
    yield ""
    yield comparison.longer_title
    yield from (f"  {line}" for line in series(comparison.longer, comparison.longer))


def noted(comparison: Comparison) -> list[str]:
    """Return the lines of a comparison's note."""
    return textwrap.wrap(comparison.note, WIDTH)


def case_lines(case: Case) -> Iterator[str]:
    """Yield the lines about a case and its two logs."""
    yield f"{case.name}: {case.title}"
    for role, log in (("leader", case.leader), ("follower", case.follower)):
        yield f"  {role:<9}{log.replica}: {log.drawn()}; high watermark {log.high_watermark}"


def results_columns(compared: Compared) -> dict[str, list[str]]:
    """Return the results of all algorithms by column, with the expected value where the actual one differs."""
    titles = {
        "round_trips": "round trips",
        "request_bits": "bits in request",
        "response_bits": "bits in response",
        "total_bytes": "bytes in all",
        "truncated_to": "truncated to",
        "differ": "logs",
    }
    columns: dict[str, list[str]] = {"algorithm": list(compared.results)}
    for field, title in titles.items():
        columns[title] = [
            _cell(field, result, compared.case.expect.get(name, {})) for name, result in compared.results.items()
        ]
    return columns


def results_table(compared: Compared) -> list[str]:
    """Return a line for each algorithm, and then the exchanged requests."""
    lines = side_by_side(results_columns(compared)).splitlines()
    for name, result in compared.results.items():
        lines += ["", f"{name}:", *(f"  {one}" for one in result.exchanges)]
        if (expected := compared.case.expect.get(name, {}).get("exchanges", result.exchanges)) != result.exchanges:
            lines += [f"  expected: {one}" for one in expected]
    return lines


def series(found: Mapping[int, Mapping[str, int]], expected: Mapping[int, Mapping[str, int]]) -> list[str]:
    """Return ``series_columns`` as lines."""
    return side_by_side(series_columns(found, expected)).splitlines()


def series_columns(
    found: Mapping[int, Mapping[str, int]], expected: Mapping[int, Mapping[str, int]]
) -> dict[str, list[str]]:
    """Return the round trips by number of leaderships, and a column for each algorithm."""
    columns = {"leaderships": [str(number) for number in found]}
    for name in ALGORITHMS:
        columns[name] = [
            _beside(str(counts.get(name, "")), str(expected[number].get(name, counts.get(name, ""))))
            for number, counts in found.items()
        ]
    return columns


def _cell(field: str, result: Result, expected: Fields) -> str:
    found = result.fields()[field]
    return _beside(_value(field, found), _value(field, expected.get(field, found)))


def _value(field: str, value: int | Sequence[int]) -> str:
    if field == "differ" and not isinstance(value, int):
        return f"differ at {value[0]} to {value[-1]}" if value else "the same"
    if field.endswith("_bits") and not isinstance(value, int):
        return ", ".join(f"+{bits}" if bits else "0" for bits in value)
    return str(value)


def _beside(found: str, expected: str) -> str:
    return found if found == expected else f"{found} (expected {expected})"


def _drawn(expected: Fields) -> Iterator[str]:
    columns, others = {}, []
    for name, fields in expected.items():
        kind = name.partition("/")[0]
        try:
            if kind in OTHERS:
                others.append(action_line(name, fields))
            elif kind in IN_TIER:
                columns[name] = [row.expected or "" for row in expected_rows(kind, fields)]
            else:
                columns[name] = Table.parse(fields).expected_lines()
        except ValueError:  # it has values that are known only in a run, as in [3, $epoch]
            others.append(f"{name}: {fields}")
    if columns:
        yield from side_by_side(columns).splitlines()
    yield from others


def _settings(values: Fields) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
