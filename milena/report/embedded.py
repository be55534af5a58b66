"""One HTML page with data and the modules that draw it. The page loads nothing: its policy forbids the network.

The modules are those that the console serves (``milena/console/static``). They import each other by name, in the form
``import { a, b } from "./other.js";``, so that they can be joined to one script without a bundler.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Final

IMPORT: Final = re.compile(r'^import (\{[\w,\s]*\}) from "\./([\w.-]+)";$', re.MULTILINE)
EXPORT: Final = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)
LEFT: Final = re.compile(r"^\s*(?:import|export)\s", re.MULTILINE)
STYLES: Final = ("theme.css", "page.css")
VENDORED: Final = "vendor/"
LICENCES: Final = f"{VENDORED}LICENCES.txt"
LICENCE: Final = re.compile(r"^\w+ \(([\w., -]+)\):", re.MULTILINE)
"""The first line of a library's licence, with the names of its files."""


def embedded(
    title: str,
    entry: str,
    data: Mapping[str, object],
    *,
    scripts: Sequence[str] = (),
    styles: Sequence[str] = STYLES,
    body: str = "",
) -> str:
    """Return the text of a page. ``entry``: the module that draws it into the element ``page``. ``data``: by the id of
    the element that carries it as JSON. ``scripts``: files that run before the modules. ``body``: HTML in the
    element ``page``."""
    style = "\n".join(static(name) for name in styles)
    classic = "\n".join(static(name) for name in scripts)
    modules = joined(entry)
    sources = " ".join(_hash(one) for one in (classic, modules) if one)
    policy = f"default-src 'none'; script-src {sources}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    return "\n".join(
        [
            f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>",
            *(f"<!--\n{licence}\n-->" for licence in licences([*scripts, *styles])),
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<meta name='viewport' content='width=device-width, initial-scale=1'><style>{style}</style></head><body>",
            f"<div id='page'>{body}</div><noscript>The drawings of this page need JavaScript, which is off.</noscript>",
            *(f"<script type='application/json' id='{name}'>{_json(value)}</script>" for name, value in data.items()),
            *([f"<script>{classic}</script>"] if classic else []),
            f"<script type='module'>{modules}</script></body></html>\n",
        ]
    )


def joined(entry: str) -> str:
    """Return a module and all that it imports as one script. Raises ValueError if one imports or exports in another
    form. Each module keeps a scope of its own."""
    found: dict[str, str] = {}
    _collect(entry, found, ())
    return "\n".join(["const modules = {};", *found.values()])


def _collect(name: str, found: dict[str, str], importing: tuple[str, ...]) -> None:
    if name in importing:
        raise ValueError(f"{name} imports itself by {' and '.join(importing)}")
    if name in found:
        return
    text = static(name)
    for _, other in IMPORT.findall(text):
        _collect(other, found, (*importing, name))
    exported = ", ".join(export for _, export in EXPORT.findall(text))
    text = EXPORT.sub(r"\1 \2", IMPORT.sub(r'const \1 = modules["\2"];', text))
    if left := LEFT.search(text):
        line = text[left.start() :].strip().splitlines()[0]
        raise ValueError(f"{name}: not in a form that can be joined: {line}")
    found[name] = f'modules["{name}"] = (() => {{\n{text}\nreturn {{ {exported} }};\n}})();'


def licences(names: Iterable[str]) -> list[str]:
    """Return the licences of the libraries of other projects among files that the console serves: a copy must contain
    them. Raises ValueError if a library has none."""
    vendored = {name.removeprefix(VENDORED) for name in names if name.startswith(VENDORED)}
    if not vendored:
        return []
    text = static(LICENCES)
    found = list(LICENCE.finditer(text))
    texts = {}
    for begun, ended in zip(found, [*(one.start() for one in found[1:]), len(text)], strict=True):
        texts[text[begun.start() : ended].strip()] = vendored.intersection(begun[1].split(", "))
    if missing := vendored.difference(*texts.values()):
        raise ValueError(f"{LICENCES} does not name {', '.join(sorted(missing))}")
    return [licence for licence, files in texts.items() if files]


def static(name: str) -> str:
    """Return the text of a file that the console serves."""
    return resources.files("milena").joinpath("console", "static", *name.split("/")).read_text(encoding="utf-8")


def _json(value: object) -> str:
    """JSON that cannot end the element that contains it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
