"""What the releases of Kafka have, printed by their classes, and the table ``milena/releases.tsv`` that follows.

``python -m tests.oracle.release_tables > milena/releases.tsv`` renews the table; Maven fetches the releases' jars.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from milena.config.keys import KEYS, TOPIC_KEYS
from milena.protocol.api_keys import ApiKey
from milena.releases import ABSENT, NEWEST, RELEASES
from tests.oracle import kafka

PROGRAM: Final = Path(__file__).with_name("ReleaseTables.java")
VERSIONS: Final = {"4.0": "4.0.0", "4.1": "4.1.1", "4.2": "4.2.0", "4.3": kafka.TEST_VERSION, "4.4": kafka.VERSION}
"""The patch release that is asked for each release."""
HEAD: Final = """\
# How earlier releases of Kafka differ from the newest, made by python -m tests.oracle.release_tables
# api: versions; feature: levels; broker, topic: default and validator of a key; former: a key that is gone
"""

Table = Mapping[tuple[str, str], str]
"""The text of a column by kind and name."""


@cache
def table_of(release: str) -> Table:
    """Return what a release has, as the columns of the table show it."""
    found: dict[tuple[str, str], str] = {}
    for kind, *columns in printed(release):
        match kind:
            case "api":
                name = ApiKey(int(columns[1])).name
                versions = _range(columns[2], columns[3])
                assert found.setdefault((kind, name), versions) == versions, f"{name} differs between the listeners"
            case "feature":
                found[kind, columns[0]] = _range(columns[1], columns[2])
            case "broker" | "topic":
                name, _, default, validator = columns
                has_effect = name in (KEYS if kind == "broker" else TOPIC_KEYS)
                found[kind, name] = f"{default} {_validator(validator)}" if has_effect else "known"
    return found


@cache
def printed(release: str) -> list[list[str]]:
    """Return the lines of the program, for the jars of a release. Raises NoKafka."""
    command = kafka.java(str(PROGRAM), version=VERSIONS[release])
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def columns(release: str) -> dict[tuple[str, str], str]:
    """Return the column of a release: what differs from the newest one, by kind and name."""
    here, newest = table_of(release), table_of(NEWEST)
    found = {}
    for kind, name in here.keys() | newest.keys():
        if (kind, name) not in newest:
            found["former", name] = "known"
        elif here.get((kind, name)) != newest[kind, name]:
            found[kind, name] = here.get((kind, name), ABSENT)
    return found


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low}-{high}"


def _validator(text: str) -> str:
    """Return a validator as ``milena/config/keys.tsv`` writes it."""
    if bounds := re.fullmatch(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\]", text):
        return f"{bounds[1]}..{bounds[2] or ''}"
    if choices := re.fullmatch(r"\[(\w.*)\]", text):
        return f"non-empty list of {choices[1].replace(', ', ',')}"
    return "-"


def table() -> str:
    """Return the content of ``milena/releases.tsv``."""
    earlier = [columns(release) for release in RELEASES if release != NEWEST]
    rows = sorted({key for one in earlier for key in one}, key=_order)
    lines = ("\t".join((kind, name, *(one.get((kind, name), "") for one in earlier))) for kind, name in rows)
    return HEAD + "".join(f"{line}\n" for line in lines)


def _order(row: tuple[str, str]) -> tuple[int, int, str]:
    kind, name = row
    key = int(ApiKey[name]) if kind == "api" else 0
    return ("api", "feature", "broker", "topic", "former").index(kind), key, name


if __name__ == "__main__":
    sys.stdout.write(table())
