"""Reasons why a mutant may survive: the program is equivalent or only slower, or a test of another suite fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final


def parse(lines: Iterable[str]) -> dict[str, str]:
    """Return the reasons by name. Each line is a name or, indented, the reason for the name before it. Raises
    ValueError if a name has no reason, a reason has no name, or a name occurs twice."""
    found: dict[str, str] = {}
    name: str | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            if name is not None or line.rstrip() in found:
                raise ValueError(f"line {number}: {name or line.rstrip()!r} has no reason, or occurs twice")
            name = line.rstrip()
        elif name is None:
            raise ValueError(f"line {number}: a reason without a name")
        else:
            found[name], name = line.strip(), None
    if name is not None:
        raise ValueError(f"{name!r} has no reason")
    return found


REASONS: Final[Mapping[str, str]] = parse((Path(__file__).parent / "reasons.txt").read_text().splitlines())
