"""`milena scenario compare`: a document's proposal beside what it replaces and rejects, measured in runs."""

from __future__ import annotations

import asyncio
import os
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from milena.command_line.errors import UserError
from milena.command_line.files import check_writable, write_text
from milena.command_line.options import Values
from milena.command_line.table import say, show_json
from milena.commands.scenario.pages import page_of_tables
from milena.commands.scenario.showing import case_columns, remarks
from milena.lab.scenarios.comparing.side_by_side import (
    MeasuredRow,
    SideBySide,
    all_tables,
    load_table,
    measured,
)
from milena.lab.scenarios.heads import SIMULATION
from milena.lab.scenarios.played import PlayedRun
from milena.lab.scenarios.script import Script, ScriptError
from milena.lab.scenarios.simulated import play_simulated
from milena.lab.scenarios.stage import ScenarioFailed
from milena.lab.scenarios.tables import side_by_side
from milena.lab.world.trace import quiet_logs

WIDTH: Final = 100


def compare(values: Values, world: str) -> int:
    """Run the scenarios of each table, and print it. Return the exit code. Raises UserError."""
    try:
        tables = [load_table(name.replace("-", "").lower()) for name in values.table or all_tables()]
    except ScriptError as error:
        raise UserError(str(error)) from None
    if values.html is not None:
        check_writable(values.html)
    quiet_logs()
    found: list[tuple[SideBySide, Sequence[MeasuredRow]]] = []
    for table in tables:
        rows = [measured(table, row, _played(row.script, world, values.seed)) for row in table.rows]
        found.append((table, rows))
        if not values.json:
            for line in _lines(table, rows):
                say(line)
    if values.json:
        show_json([_fields(table, world, rows) for table, rows in found])
    if values.html is not None:
        write_text(values.html, page_of_tables(found))
    return 1 if any(row.wrong() for _, rows in found for row in rows) else 0


def _played(script: Script, world: str, seed: int) -> PlayedRun:
    run = PlayedRun(script, world)
    try:
        if world == SIMULATION:
            play_simulated(script, seed=seed, watch=run.steps.append)
        else:
            from milena.testing.scenario_processes import play_on_processes

            with tempfile.TemporaryDirectory(prefix="milena-scenario-") as folder:
                asyncio.run(play_on_processes(script, os.path.join(folder, "cluster"), watch=run.steps.append))
    except ScenarioFailed as error:
        run.error = str(error)
    return run


def _fields(table: SideBySide, world: str, rows: Sequence[MeasuredRow]) -> dict[str, object]:
    return {
        "id": table.id,
        "title": table.title,
        "document": table.document,
        "note": table.note,
        "world": world,
        "rows": [row.fields() for row in rows],
        "remarks": list(table.remarks),
        "elsewhere": list(table.elsewhere),
    }


def _lines(table: SideBySide, rows: Sequence[MeasuredRow]) -> Iterator[str]:
    yield f"{table.title} ({table.document})"
    yield ""
    if table.note:
        yield from textwrap.wrap(table.note, WIDTH)
    for case, columns in case_columns(table, rows):
        yield ""
        yield case
        yield from (f"  {line}" for line in side_by_side(columns).splitlines())
    for title, texts in remarks(table):
        yield ""
        yield f"{title}:"
        for text in texts:
            yield from textwrap.wrap(text, WIDTH, initial_indent="- ", subsequent_indent="  ")
    yield ""
    wrong = [one for row in rows for one in row.wrong()]
    for one in wrong:
        yield f"wrong: {one}"
    yield f"{table.id}: {'FAILED' if wrong else 'as expected'}, {len(rows)} runs"
