"""One HTML page with facts, tables, plots and the story of a run. It needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from milena.report.contents import Cell, Facts, Plots, Section, Story, Table
from milena.report.embedded import STYLES as PLAIN
from milena.report.embedded import embedded
from milena.report.plotted import plotted

SCRIPTS: Final = ("vendor/uPlot.iife.min.js",)
STYLES: Final = ("theme.css", "vendor/uPlot.min.css", "page.css")


def page(
    title: str, verdict: str, sections: Sequence[Section], *, good: bool = True, coloured: Sequence[str] = ()
) -> str:
    """Return the page's text. ``verdict``: one line below the title. ``coloured``: the names of series that have the
    same colour on all pages with the same names."""
    sign = "✓" if good else "✗"
    parts = [
        f"<header><h1>{escape(title)}</h1>",
        f"<p class='verdict {'good' if good else 'bad'}'>{sign} {escape(verdict)}</p></header>",
    ]
    data: dict[str, object] = {}
    for number, section in enumerate(sections):
        match section:
            case Facts():
                parts += _facts(section)
            case Table():
                parts += _table(section)
            case Plots():
                parts += _drawn("plots", number, section.title, section.note)
                data[f"data-{number}"] = plotted(section, coloured)
            case Story():
                parts += _drawn("story", number, "", "")
                data[f"data-{number}"] = section.data
    has_plots = any(isinstance(section, Plots) for section in sections)
    return embedded(
        title,
        "report.js",
        data,
        scripts=SCRIPTS if has_plots else (),
        styles=STYLES if has_plots else PLAIN,
        body="\n".join(parts),
    )


def _drawn(kind: str, number: int, title: str, note: str) -> Iterator[str]:
    """An element that a module fills with the data of this number."""
    if title:
        yield f"<h2>{escape(title)}</h2>"
    if note:
        yield f"<p class='note'>{escape(note)}</p>"
    yield f"<div class='{kind}-place' data-from='data-{number}'></div>"


def _facts(facts: Facts) -> Iterator[str]:
    yield f"<h2>{escape(facts.title)}</h2><dl>"
    for name, value in facts.values.items():
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        yield f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>"
    yield "</dl>"


def _table(table: Table) -> Iterator[str]:
    title = escape(table.title)
    yield f"<details><summary>{title}</summary>" if table.folded else f"<h2>{title}</h2>"
    if table.note:
        yield f"<p class='note'>{escape(table.note)}</p>"
    numbers = {at for at in range(len(table.columns)) if any(isinstance(row[at], int | float) for row in table.rows)}
    kind = [" class='number'" if at in numbers else "" for at in range(len(table.columns))]
    half = (len(table.rows) + 1) // 2 if table.halves else len(table.rows)
    yield f"<div class='scroll halves' tabindex='0' role='group' aria-label='{title}'>"
    for begin in (0, half) if table.halves else (0,):
        yield from _rows(table, range(begin, min(begin + half, len(table.rows))), kind)
    yield "</div></details>" if table.folded else "</div>"


def _rows(table: Table, indexes: range, kind: Sequence[str]) -> Iterator[str]:
    heads = "".join(f"<th{kind[at]}>{escape(name)}</th>" for at, name in enumerate(table.columns))
    yield f"<table><thead><tr>{heads}</tr></thead><tbody>"
    for index in indexes:
        cells = "".join(f"<td{kind[at]}>{escape(shown(cell))}</td>" for at, cell in enumerate(table.rows[index]))
        yield f"<tr class='bad'>{cells}</tr>" if index in table.bad else f"<tr>{cells}</tr>"
    yield "</tbody></table>"


def shown(cell: Cell) -> str:
    """Return the text of a cell."""
    if cell is None:
        return "–"
    return f"{cell:,.1f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell
