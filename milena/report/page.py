"""One HTML page without external files or network. Plots are drawn by plotly (the extra ``report``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from milena.command_line.errors import UserError
from milena.report.contents import Cell, Facts, Plots, Section, Table

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --bad: #c62828; --good: #2e7d32; --dim: #777; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; --good: #81c784; --dim: #999; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
.verdict { font-size: 1.15rem; font-weight: 600; margin: .2rem 0 1rem; }
.good { color: var(--good); } .bad, tr.bad td { color: var(--bad); font-weight: 600; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--dim); font-weight: 500; }
th, td { padding: .2rem 1.6rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.6rem; margin: 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
p.note { color: var(--dim); margin: .3rem 0; max-width: 60rem; }
summary { font-size: 1.15rem; font-weight: 600; cursor: pointer; margin: 2.2rem 0 .5rem; }
.scroll { overflow-x: auto; display: flex; gap: 4rem; align-items: flex-start; }
"""


def page(
    title: str, verdict: str, sections: Sequence[Section], *, good: bool = True, coloured: Sequence[str] = ()
) -> str:
    """Return the page's text. ``verdict``: one line below the title. ``coloured``: the names of series that have the
    same colour on all pages with the same names. Raises UserError if plotly is not installed."""
    parts = [
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>",
        f"<meta name='viewport' content='width=device-width'><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1><p class='verdict {'good' if good else 'bad'}'>{escape(verdict)}</p>",
    ]
    first = True
    for section in sections:
        match section:
            case Facts():
                parts += _facts(section)
            case Table():
                parts += _table(section)
            case Plots():
                parts += _plots(section, coloured, with_library=first)
                first = False
    return "\n".join([*parts, "</body></html>\n"])


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
    yield "<div class='scroll'>"
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


def _plots(section: Plots, coloured: Sequence[str], *, with_library: bool) -> Iterator[str]:
    from milena.report.drawing import figure

    yield f"<h2>{escape(section.title)}</h2>"
    if section.note:
        yield f"<p class='note'>{escape(section.note)}</p>"
    yield figure(section, coloured, with_library=with_library)


def check_library() -> None:
    """Raise UserError if plotly is not installed. Call this before a long run, not after it."""
    try:
        import plotly.graph_objects  # noqa: F401
    except ImportError:
        raise UserError("plots need plotly, which is not installed: pip install 'milena-kafka[report]'") from None
