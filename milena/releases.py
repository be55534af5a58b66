"""The releases of Kafka that a node can behave like (``kafka.version``), and what earlier ones lack.

``releases.tsv`` has a line for each API, feature and configuration key that is not the same in all of them: what it is,
its name, and a column for each earlier release. ``-`` means that the release does not have it, an empty column that it
is as in the newest release. ``tests/oracle/test_releases.py`` compares the table with Kafka's classes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Final

RELEASES: Final = ("4.0", "4.1", "4.2", "4.3", "4.4")
NEWEST: Final = RELEASES[-1]
KEY: Final = "kafka.version"
"""The configuration key that limits a node to a release."""
ABSENT: Final = "-"
TABLE: Final = os.path.join(os.path.dirname(__file__), "releases.tsv")


@cache
def differences(release: str, kind: str) -> Mapping[str, str]:
    """Return what differs in ``release`` from the newest one, by name: the text of its column. ``kind`` is the first
    column of the table."""
    if release == NEWEST:
        return {}
    column = 2 + RELEASES.index(release)
    return {row[1]: row[column] for row in _rows() if row[0] == kind and row[column]}


@cache
def _rows() -> tuple[list[str], ...]:
    with open(TABLE, encoding="utf-8") as file:
        return tuple(line.rstrip("\n").split("\t") for line in file if not line.startswith("#"))
