"""Why a mutant may survive, by its name: it is no other program, or only costs time, or another test would see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final


def parse(lines: Iterable[str]) -> dict[str, str]:
    """Each line is a name, or, indented, the reason of the name before it. Raises ValueError for what is neither."""
    found: dict[str, str] = {}
    name: str | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            if name is not None or line.rstrip() in found:
                raise ValueError(f"line {number}: {name or line.rstrip()!r} has no reason, or is there twice")
            name = line.rstrip()
        elif name is None:
            raise ValueError(f"line {number}: a reason of nothing")
        else:
            found[name], name = line.strip(), None
    if name is not None:
        raise ValueError(f"{name!r} has no reason")
    return found


REASONS: Final[Mapping[str, str]] = parse((Path(__file__).parent / "reasons.txt").read_text().splitlines())
