"""The sets of names under which ``/metrics`` shows a node's metrics (``?names=``): those of Strimzi's metrics reporter,
and those that the usual rules of the JMX exporter give to Kafka's MBeans.

``metric_names.tsv`` has a line for each family: the name under which it is registered, and how each set shows it. A
cell is a name, optionally followed by a type that differs from the set's usual one; ``=`` is the registered name, ``-``
none. Lines with ``label`` rename labels. Families that the table does not list keep their names in every set.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from milena.node.metrics_text import Names, ShownAs

REPORTER: Final = "reporter"
STRIMZI: Final = "strimzi"
CONFLUENT: Final = "confluent"
SETS: Final = (REPORTER, STRIMZI, CONFLUENT)
"""In the order of the table's columns."""
LABEL: Final = "label"
TABLE: Final = Path(__file__).with_name("metric_names.tsv")


_STYLES: Final = {
    REPORTER: Names(),
    STRIMZI: Names(types={"summary": "gauge"}, count_suffix="_count", quantile_digits=2),
    CONFLUENT: Names(
        types={"counter": "untyped", "gauge": "untyped", "summary": "untyped"}, count_suffix="", quantile_digits=2
    ),
}
"""How the sets show types, the counts of summaries and quantiles."""


class UnknownNames(ValueError):
    """There is no such set of names."""


@cache
def names_of(chosen: str) -> Names:
    """Return a set of names. Raises UnknownNames."""
    if chosen not in SETS:
        raise UnknownNames(f"names={chosen} is not known; the sets of names are {', '.join(SETS)}")
    column = 1 + SETS.index(chosen)
    shown: dict[str, ShownAs | None] = {}
    labels: dict[str, str] = {}
    for line in TABLE.read_text().splitlines():
        if not line.startswith("#"):
            row = line.split("\t")
            if row[0].startswith(f"{LABEL} "):
                label = row[0].removeprefix(f"{LABEL} ")
                labels[label] = label if row[column] == "=" else row[column]
            else:
                shown[row[0]] = _shown(row[0], row[column], chosen)
    return replace(_STYLES[chosen], shown=shown, labels=labels)


def _shown(key: str, cell: str, chosen: str) -> ShownAs | None:
    """Return what a cell says of the family ``key``."""
    if cell == "-":
        return None
    name, _, kind = cell.partition(" ")
    return ShownAs(key if name == "=" else name, kind or None)
