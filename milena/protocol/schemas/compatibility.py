"""Generates the table of APIs in docs/compatibility.md from the registry.

``python -m milena.protocol.schemas.compatibility < docs/compatibility.md`` prints the document with a new table; the
other text is not changed. A test compares document and registry.
"""

from __future__ import annotations

import sys
from typing import Final

from milena.protocol.schemas.registry import REGISTRY, Api, Role

BEGIN: Final = "<!-- APIs: made by python -m milena.protocol.schemas.compatibility -->"
END: Final = "<!-- APIs: end -->"
_HEAD: Final = (
    "| key | API | Kafka 4.4 | Milena | broker | controller | difference |",
    "|---|---|---|---|---|---|---|",
)


def table() -> str:
    """Return the table with its markers."""
    return "\n".join((BEGIN, *_HEAD, *map(_row, REGISTRY.values()), END))


def renewed(document: str) -> str:
    """Return ``document`` with a new table between its markers. Raises ValueError if the document has no markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no table between {BEGIN!r} and {END!r}")
    return before + table() + after


def _row(api: Api) -> str:
    name = api.key.name.title().replace("_", "")
    ours = "-" if api.ours is None else str(api.ours)
    roles = (_served(api, Role.BROKER), _served(api, Role.CONTROLLER))
    return f"| {api.key.value} | {name} | {api.kafka} | {ours} | {' | '.join(roles)} | {api.note} |"


def _served(api: Api, role: Role) -> str:
    if role not in api.listeners:
        return ""
    return "yes" if api.ours is not None else "no"


if __name__ == "__main__":
    sys.stdout.write(renewed(sys.stdin.read()))
