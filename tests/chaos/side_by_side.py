"""``python -m tests.chaos.side_by_side REPORT REPORT``: two chaos runs as tables, for docs/internals/chaos.md.

Each REPORT is the folder that a run of ``milena chaos`` has written; the first is on the left. If seed, duration or
kinds of faults differ, a line below the first table says so: then compare the seconds of one kind of fault only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from milena.lab.histories.anomalies import Anomaly
from milena.lab.histories.kinds import JEPSEN
from tests.oracle.kafka import VERSION

Report = Mapping[str, Any]
"""The content of ``report.json``."""
NONE: Final = "–"
NOT_JUDGED: Final = "not judged"
SAME: Final = ("seed", "seconds", "faults", "unsafe")
"""The settings that determine the plan of a run."""


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
    """Lines of Markdown, with three tables: totals, anomalies, kinds of faults."""
    both = (left, right)
    names = [_name(report) for report in both]
    yield from _table(["", *names], zip(_WHOLE, _whole(left), _whole(right), strict=True))
    if differing := [name for name in SAME if left["about"].get(name) != right["about"].get(name)]:
        yield ""
        yield f"The plans differ, in {' and '.join(differing)}."
    yield ""
    yield from _table(["anomaly", "in Jepsen's terms", *names], _anomalies(both))
    yield ""
    columns = [f"{what}, {name}" for name in names for what in ("injected", "seen", "median", "worst")]
    kinds = list(dict.fromkeys(row["kind"] for report in both for row in report["faults"]))
    rows = ([kind, *_fault(left, kind), *_fault(right, kind)] for kind in kinds)
    yield from _table(["fault, and seconds until writes flowed again", *columns], rows)


def _name(report: Report) -> str:
    place = str(report["about"].get("place", "?"))
    return f"Apache Kafka {VERSION}" if place == "kafka" else f"Milena ({place})"


def _table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


_WHOLE = (
    "verdict",
    "seconds of faults, seed",
    "clients",
    "anomalies",
    "operations",
    "acknowledged writes",
    "acknowledged writes a second",
    "records read a second",
    "latency of writes in the median second: p50, p99",
    "transactions: commits acknowledged, refused, of unknown outcome",
    "transactions: aborts acknowledged, of unknown outcome",
    "records in transactions acknowledged",
    "faults injected",
    "of them seen",
    "seconds without a write, over all partitions (at most)",
)


_TRANSACTIONS: Final[Mapping[str, Sequence[str]]] = {
    "commit of a transaction": ("ok", "failed", "unknown"),
    "abort": ("ok", "unknown"),
    "write in a transaction": ("ok",),
}


def _whole(report: Report) -> Iterator[str]:
    about, over = report["about"], report["over time"]
    writes = sum(row["count"] for row in report["operations"] if _is_write(row))
    yield report["verdict"]
    yield f"{about.get('seconds', 0):,.0f}, {about.get('seed', '?')}"
    yield ", ".join(about.get("clients", ())) or NONE
    yield f"{sum(count or 0 for count in report['anomalies'].values()):,}"
    yield f"{sum(row['count'] for row in report['operations']):,}"
    yield f"{writes:,}"
    seconds = max(1, len(over["unavailable"]) * over["width"])
    yield f"{writes / seconds:,.1f}"
    read = sum(rate * over["width"] for rates in over["reads"].values() for rate in rates)
    yield f"{read / seconds:,.1f}"
    yield ", ".join(_median_ms(over["latency"][one]) for one in ("p50", "p99"))
    counts = {(row["operation"], row["outcome"]): row["count"] for row in report["operations"]}
    for operation, outcomes in _TRANSACTIONS.items():
        yield ", ".join(f"{counts.get((operation, outcome), 0):,}" for outcome in outcomes)
    yield f"{sum(row['times'] for row in report['faults']):,}"
    yield f"{sum(row['seen'] for row in report['faults']):,}"
    yield f"{sum(over['unavailable']) * over['width']:,}"


def _is_write(row: Mapping[str, Any]) -> bool:
    return (row["operation"], row["outcome"]) == ("write", "ok")


def _median_ms(values: Iterable[float | None]) -> str:
    there = [value for value in values if value is not None]
    return f"{1000 * median(there):.1f} ms" if there else NONE


def _anomalies(reports: Sequence[Report]) -> Iterator[list[str]]:
    """A row for each anomaly that has a name in Jepsen or was found, and one row for all others."""
    others: list[list[str]] = []
    for one in Anomaly:
        cells = [_count(report, one.value) for report in reports]
        if one in JEPSEN or any(cell not in ("0", NOT_JUDGED) for cell in cells):
            yield [one.value, JEPSEN.get(one, NONE), *cells]
        else:
            others.append(cells)
    unjudged = [sum(cell == NOT_JUDGED for cell in cells) for cells in zip(*others, strict=True)]
    yield [f"{len(others)} others", NONE, *(f"0; {count} {NOT_JUDGED}" if count else "0" for count in unjudged)]


def _count(report: Report, anomaly: str) -> str:
    count = report["anomalies"].get(anomaly)
    text = NOT_JUDGED if count is None else f"{count:,}"
    expected = report.get("controls", {}).get(anomaly, 0)
    return f"{text}; {expected:,} where nothing is promised" if expected else text


def _fault(report: Report, kind: str) -> list[str]:
    for row in report["faults"]:
        if row["kind"] == kind:
            return [str(row["times"]), str(row["seen"]), _seconds(row["median"]), _seconds(row["worst"])]
    return ["0", NONE, NONE, NONE]


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value > 0.1 else "below 0.1 s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
