"""The tables of `milena scenario compare`: each number is as the file expects, and a wrong one is reported."""

from __future__ import annotations

from copy import deepcopy
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from milena.command_line.errors import UserError
from milena.commands.scenario.command import main
from milena.lab.scenarios.comparing.side_by_side import PACKAGE, all_tables, load_table, measured, table_of
from milena.lab.scenarios.played import PlayedRun
from milena.lab.scenarios.script import ScriptError
from milena.lab.scenarios.simulated import play_simulated


def data(name: str = "kip903") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(resources.files(PACKAGE).joinpath(f"{name}.yaml").read_text())
    return deepcopy(found)


@pytest.mark.parametrize("name", all_tables())
def test_every_table_is_as_expected(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", name]) == 0
    assert capsys.readouterr().out.endswith(f"{name}: as expected, {len(data(name)['rows'])} runs\n")


def test_tables_are_written_as_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    assert main(["compare", "kip903", "--html", str(page)]) == 0
    text, table = page.read_text(), load_table("kip903")
    assert f"<h1>{escape(table.title)}</h1>" in text and "✓ as expected" in text
    assert all(escape(row.name) in text and row.script.id in text for row in table.rows)
    assert all(escape(one) in text for one in (table.note, *table.columns, *table.remarks, *table.elsewhere))
    content = data()
    content["rows"][0]["expect"] = {"lost records": 99}
    monkeypatch.setattr("milena.commands.scenario.compare.load_table", lambda _: table_of(content))
    assert main(["compare", "kip903", "--html", str(page)]) == 1
    assert "✗ 1 differences" in page.read_text() and "expected 99" in page.read_text()
    shown = capsys.readouterr().out
    with pytest.raises(UserError, match="cannot write"):
        main(["compare", "kip903", "--html", str(tmp_path / "missing" / "page.html")])
    assert shown and not capsys.readouterr().out


def test_a_wrong_number_is_reported_with_its_row() -> None:
    content = data()
    content["rows"] = [row for row in content["rows"] if row["name"] == "before KIP-903"]
    content["rows"][0]["expect"] = {"lost records": 2, "refused AlterPartitions": 0}
    table = table_of(content)
    (row,) = table.rows
    run = PlayedRun(row.script, "simulation")
    play_simulated(row.script, watch=run.steps.append)
    assert measured(table, row, run).wrong() == [f"{row.case}, before KIP-903: lost records is 3, expected 2"]


def test_a_run_that_has_not_finished_is_reported() -> None:
    table = load_table("kip903")
    row = table.rows[0]
    (wrong,) = measured(table, row, PlayedRun(row.script, "simulation")).wrong()
    assert wrong.endswith("it has not finished")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"columns": ["lost"]}, "no column lost"),
        ({"row": []}, r"has no row \(did you mean rows\?\)"),
    ],
)
def test_the_error_for_an_unknown_word_names_the_nearest_known_one(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ScriptError, match=said):
        table_of(data() | change)


def test_the_error_for_an_unknown_table_names_the_known_ones() -> None:
    with pytest.raises(ScriptError, match=r"no comparison 'kip904'.*kip903"):
        load_table("kip904")
