"""`milena scenario compare`: a document's proposal beside what it replaces and rejects, measured in runs."""

from __future__ import annotations

import asyncio
import os
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from milena.command_line.errors import UserError
from milena.command_line.options import Values
from milena.command_line.table import say, show_json
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
    quiet_logs()
    documents, failed = [], False
    for table in tables:
        rows = [measured(table, row, _played(row.script, world, values.seed)) for row in table.rows]
        wrong = [one for row in rows for one in row.wrong()]
        failed = failed or bool(wrong)
        documents.append(_fields(table, world, rows))
        if not values.json:
            for line in _lines(table, rows, wrong):
                say(line)
    if values.json:
        show_json(documents)
    return 1 if failed else 0


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


def _lines(table: SideBySide, rows: Sequence[MeasuredRow], wrong: Sequence[str]) -> Iterator[str]:
    yield f"{table.title} ({table.document})"
    yield ""
    if table.note:
        yield from textwrap.wrap(table.note, WIDTH)
    for case, members in groupby(rows, key=lambda row: row.row.case):
        of_case = list(members)
        yield ""
        yield case
        columns = {"": [row.row.name for row in of_case]}
        columns |= {column: [str(row.values[column]) for row in of_case] for column in table.columns}
        columns["scenario"] = [f"{row.row.script.id} ({row.row.script.variant})" for row in of_case]
        yield from (f"  {line}" for line in side_by_side(columns).splitlines())
    for title, texts in (("What the numbers do not confirm:", table.remarks), ("Not run:", table.elsewhere)):
        if texts:
            yield ""
            yield title
        for text in texts:
            yield from textwrap.wrap(text, WIDTH, initial_indent="- ", subsequent_indent="  ")
    yield ""
    for one in wrong:
        yield f"wrong: {one}"
    yield f"{table.id}: {'FAILED' if wrong else 'as expected'}, {len(rows)} runs"
