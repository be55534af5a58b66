"""Generates the tables of keys in docs/configuration.md from the definitions.

``python -m milena.config.document < docs/configuration.md`` prints the page with new tables; the text around them is
kept. A test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Final

from milena.config.definitions import Key, Required
from milena.config.keys import INTERNAL, KEYS, TOPIC_KEYS
from milena.config.synonyms import BROKER_SYNONYMS
from milena.config.values import render

MARK: Final = "<!-- {}: made by python -m milena.config.document -->"
END: Final = "<!-- end -->"


def tables() -> Mapping[str, str]:
    """Return the tables by the names in their marks."""
    topic = [
        f"| `{name}` | {key.type.name.lower()} | {default_of(key)} | {', '.join(_synonyms(name)) or '-'} |"
        for name, key in sorted(TOPIC_KEYS.items())
        if name not in INTERNAL
    ]
    node = [
        f"| `{name}` | {key.type.name.lower()} | {default_of(key)} | {key.mode.value} |"
        for name, key in sorted(KEYS.items())
        if name not in INTERNAL
    ]
    return {
        "topic keys": _table(("key", "type", "default", "the broker's key"), topic),
        "node keys": _table(("key", "type", "default", "changed"), node),
    }


def renewed(document: str) -> str:
    """Return ``document`` with new tables between their marks. Raises ValueError if one is missing."""
    for name, table in tables().items():
        mark = MARK.format(name)
        before, begin, rest = document.partition(mark)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise ValueError(f"the document has no table between {mark!r} and {END!r}")
        document = f"{before}{mark}\n{table}\n{END}{after}"
    return document


def default_of(key: Key) -> str:
    if isinstance(key.default, Required):
        return "required"
    text = render(key.default)
    return "none" if text is None else f"`{text}`" if text else "empty"


def _synonyms(name: str) -> Iterable[str]:
    return (f"`{broker_key}`" for broker_key, _ in BROKER_SYNONYMS.get(name, ()))


def _table(head: tuple[str, ...], rows: list[str]) -> str:
    return "\n".join((f"| {' | '.join(head)} |", "|" + "---|" * len(head), *rows))


if __name__ == "__main__":
    sys.stdout.write(renewed(sys.stdin.read()))
