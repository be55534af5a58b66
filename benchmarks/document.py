"""The table of figures in docs/performance.md, made from a result of `make bench`.

python -m benchmarks.document benchmarks/results/FILE.json      renews the table in place
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.goals import rows

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- figures: made by python -m benchmarks.document -->", "<!-- figures: end -->"


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown, below a line that says where they come from."""
    machine = result["machine"]
    kind = "`SHORT=1 make bench`" if result["short"] else "`make bench`"
    origin = f"{kind} on {machine['cpus']} cores ({machine['machine']}), Python {machine['python']}:"
    head, *figures = ["| " + " | ".join(row) + " |" for row in rows(result)]
    return "\n".join((origin, "", head, "|---" * (head.count("|") - 1) + "|", *figures))


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    text = DOCUMENT.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT} has no table between {BEGIN!r} and {END!r}")
    DOCUMENT.write_text(f"{before}{BEGIN}\n{table(json.loads(Path(arguments[0]).read_text()))}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
