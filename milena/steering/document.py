"""Generates the tables of docs/lab-commands.md from the catalog of lab commands.

``python -m milena.steering.document < docs/lab-commands.md`` prints the page with new tables; the text before them is
kept. A test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from milena.node.serving.lab_catalog import CATALOG, ENDS, GROUPS, MATCHES, RULES, SIDE
from milena.node.serving.lab_descriptions import Argument, LabCommandDescription

MARK: Final = "<!-- made by python -m milena.steering.document -->"
COMMON: Final = (*MATCHES, *ENDS, SIDE)
"""The arguments of all rules, which have a table of their own."""


def renewed(document: str) -> str:
    """Return ``document`` with new tables after the mark. Raises ValueError if it has no mark."""
    before, mark, _ = document.partition(MARK)
    if not mark:
        raise ValueError(f"the document has no line {MARK!r}")
    return f"{before}{mark}\n\n" + "\n".join(_lines())


def _lines() -> Iterator[str]:
    for group, text in GROUPS.items():
        yield from (f"## {group}", "", f"{group} {text}.", "")
        yield from ("| command | what it does | arguments | returns | to undo it |", "|---|---|---|---|---|")
        for one in CATALOG.values():
            if one.group == group:
                yield f"| {' | '.join(_cells(one))} |"
        yield ""
        if group == RULES:
            yield from ("### Arguments of rules", "", "| argument | type | meaning |", "|---|---|---|")
            yield from (f"| `{one.name}` | {_type(one)} | {one.help} |" for one in COMMON)
            yield ""


def _cells(one: LabCommandDescription) -> Iterator[str]:
    only = "" if len(one.nodes) > 1 else f" ({one.nodes[0]}s only)"
    yield f"`{one.name}`"
    yield f"{one.summary}{only}"
    own = [argument for argument in one.arguments if argument not in COMMON]
    texts = [f"`{argument.name}` ({_type(argument)}): {argument.help}" for argument in own]
    if len(own) < len(one.arguments):
        without = "" if SIDE in one.arguments else " except `side`"
        texts.append(f"[those of rules](#arguments-of-rules){without}")
    yield "<br>".join(texts)
    yield one.returns
    yield one.undo


def _type(one: Argument) -> str:
    default = "required" if one.required else "" if one.default in (None, "") else f"default `{one.default}`"
    choices = f"one of {', '.join(f'`{choice}`' for choice in one.choices if choice)}" if one.choices else ""
    return ", ".join(filter(None, (" or ".join(one.kinds), choices, default)))


if __name__ == "__main__":
    sys.stdout.write(renewed(sys.stdin.read()))
