"""The tables of figures in the documentation, made from results of `make bench` or `python -m benchmarks STAGE`.

python -m benchmarks.document benchmarks/results/FILE.json...      renews the tables in place

docs/performance.md gets the figures of SUMMARY, docs/internals/performance.md all others: each figure is in one place.
If several results of one machine are given, the last file that has a figure counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.goals import COLUMNS, GOALS, rows

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- figures: made by python -m benchmarks.document -->", "<!-- figures: end -->"

SUMMARY: Final = (
    "ready_s",
    "idle_memory_mib",
    "idle_cpu_percent",
    "produce_p50_ms",
    "produce_p99_ms",
    "end_to_end_p50_ms",
    "produce_mb_s",
    "consume_mb_s",
    "replicated_produce_p50_ms",
    "replicated_produce_p99_ms",
    "replicated_six_mb_s",
    "wiped_follower_mb_s",
    "leader_killed_s",
    "create_1000_partitions_s",
    "partitions_memory_mib",
    "reset_ms",
    "restore_ms",
    "cleaned_mb_s",
    "cleaning_produce_growth",
    "tier_consume_cold_mb_s",
    "tier_copied_s",
    "tier_copy_produce_growth",
)
"""The figures that users look for first."""

PAGES: Final[Mapping[Path, Collection[str]]] = {
    DOCS / "performance.md": SUMMARY,
    DOCS / "internals" / "performance.md": [name for name in GOALS if name not in SUMMARY],
}
"""Page to the figures that it has."""


def table(result: dict[str, Any], names: Collection[str]) -> str:
    """Return the figures of ``names`` as Markdown, after a line that says where they come from."""
    machine = result["machine"]
    kind = "`SHORT=1 make bench`" if result["short"] else "`make bench`"
    origin = f"{kind} on {machine['cpus']} cores ({machine['machine']}), Python {machine['python']}:"
    head, *figures = ["| " + " | ".join(row) + " |" for row in rows(result, names)]
    return "\n".join((origin, "", head, "|---" * (head.count("|") - 1) + "|", *figures))


def together(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge results. Raises ValueError if they are of different machines, or only some of them are SHORT."""
    first, *others = results
    if any((one["machine"], one["short"]) != (first["machine"], first["short"]) for one in others):
        raise ValueError("the results are of different machines, or some are SHORT")
    figures: dict[str, dict[str, float]] = {name: {} for name in COLUMNS if any(name in one for one in results)}
    for one in results:
        for name, measured in figures.items():
            measured.update(one.get(name, {}))
    return {**first, **figures}


def with_table(page: str, figures: str) -> str:
    """Return the text of ``page`` with its table replaced. Raises ValueError if the page has no place for a table."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no table between {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{figures}\n{END}{after}"


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    result = together([json.loads(Path(name).read_text()) for name in arguments])
    renewed = {page: with_table(page.read_text(), table(result, names)) for page, names in PAGES.items()}
    for page, text in renewed.items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
