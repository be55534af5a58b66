"""The table of figures in docs/performance.md, made from results of `make bench` or `python -m benchmarks STAGE`.

python -m benchmarks.document benchmarks/results/FILE.json...      renews the table in place

Of several results, all of one machine, a figure is that of the last file that has it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.goals import COLUMNS, rows

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- figures: made by python -m benchmarks.document -->", "<!-- figures: end -->"


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown, below a line that says where they come from."""
    machine = result["machine"]
    kind = "`SHORT=1 make bench`" if result["short"] else "`make bench`"
    origin = f"{kind} on {machine['cpus']} cores ({machine['machine']}), Python {machine['python']}:"
    head, *figures = ["| " + " | ".join(row) + " |" for row in rows(result)]
    return "\n".join((origin, "", head, "|---" * (head.count("|") - 1) + "|", *figures))


def together(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Raises ValueError if they are not of one machine and one measure of work."""
    first, *others = results
    if any((one["machine"], one["short"]) != (first["machine"], first["short"]) for one in others):
        raise ValueError("the results are of different machines, or some are SHORT")
    figures: dict[str, dict[str, float]] = {name: {} for name in COLUMNS if any(name in one for one in results)}
    for one in results:
        for name, found in figures.items():
            found.update(one.get(name, {}))
    return {**first, **figures}


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    text = DOCUMENT.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT} has no table between {BEGIN!r} and {END!r}")
    result = together([json.loads(Path(name).read_text()) for name in arguments])
    DOCUMENT.write_text(f"{before}{BEGIN}\n{table(result)}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
