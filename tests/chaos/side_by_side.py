"""``python -m tests.chaos.side_by_side REPORT REPORT``: two runs of one plan as tables, for docs/reliability.md.

Each REPORT is the folder that a run of ``make chaos`` has left; the first is named on the left.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Report = Mapping[str, Any]
"""What ``report.json`` holds."""


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        left, right = [json.loads((Path(folder) / "report.json").read_text()) for folder in arguments]
    except (OSError, ValueError) as error:
        print(f"no report of a run: {error}", file=sys.stderr)
        return 1
    for line in tables(left, right):
        print(line)
    return 0


def tables(left: Report, right: Report) -> Iterator[str]:
    """Lines of Markdown: the runs as wholes, then each kind of fault."""
    names = [str(report["about"].get("place", "?")) for report in (left, right)]
    yield f"| | {' | '.join(names)} |"
    yield "|---|---|---|"
    for name, one, other in zip(_WHOLE, _whole(left), _whole(right), strict=True):
        yield f"| {name} | {one} | {other} |"
    yield ""
    columns = [f"{what}, {name}" for name in names for what in ("times", "median", "worst")]
    yield f"| fault | {' | '.join(columns)} |"
    yield "|---" * (1 + len(columns)) + "|"
    kinds = list(dict.fromkeys(row["kind"] for report in (left, right) for row in report["faults"]))
    for kind in kinds:
        yield f"| {kind} | {' | '.join([*_fault(left, kind), *_fault(right, kind)])} |"


_WHOLE = (
    "verdict",
    "anomalies",
    "acknowledged writes",
    "operations",
    "faults injected",
    "seconds without a write, over all partitions (at most)",
)


def _whole(report: Report) -> Iterator[str]:
    yield report["verdict"]
    yield f"{sum(count or 0 for count in report['anomalies'].values()):,}"
    yield f"{sum(row['count'] for row in report['operations'] if _is_write(row)):,}"
    yield f"{sum(row['count'] for row in report['operations']):,}"
    yield f"{sum(row['times'] for row in report['faults']):,}"
    over = report["over time"]
    yield f"{sum(over['unavailable']) * over['width']:,}"


def _is_write(row: Mapping[str, Any]) -> bool:
    return (row["operation"], row["outcome"]) == ("write", "ok")


def _fault(report: Report, kind: str) -> list[str]:
    for row in report["faults"]:
        if row["kind"] == kind:
            return [str(row["times"]), _seconds(row["median"]), _seconds(row["worst"])]
    return ["0", "", ""]


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value > 0.1 else "below 0.1 s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
