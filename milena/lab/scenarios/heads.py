"""The heads of the shipped scenario files, read without YAML: what a list of scenarios shows.

Parsing all files takes half a second, reading their heads a few milliseconds. Nothing is stored, so nothing can be
outdated; a test compares each head with the parsed file.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import Final, NamedTuple

SIMULATION: Final = "simulation"
PROCESSES: Final = "processes"
WORLDS: Final = (SIMULATION, PROCESSES)
PLAIN: Final = "plain"
"""The variant of a scenario without ``variants``."""
SUFFIX: Final = ".yaml"
BODIES: Final = ("steps", "cases")
"""The keys at which a head ends."""
OTHER: Final = "Other"
GROUPS: Final = {
    "KIP-405": "KIP-405, tiered storage: followers, elections and the remote tier",
    "KIP-279": "KIP-279, truncation by leader epochs",
    "KIP-903": "KIP-903, replicas with a stale broker epoch do not join the ISR",
    "KIP-1272": "KIP-1272 (draft), compacted topics in the remote tier",
    "KIP-98": "KIP-98, transactions: zombies are fenced, and coordinators replaced",
    "KIP-447": "KIP-447, offsets of consumer groups in transactions",
    "KIP-664": "KIP-664, hanging transactions are found and aborted",
    "KIP-890": "KIP-890, delayed requests of earlier transactions",
    "KAFKA-": "Known bugs of Kafka",
    "Kafka's ": "Kafka's storage tests",
}
"""Titles of the groups by the beginning of ``document``, in the order of the list."""


class Head(NamedTuple):
    """``worlds``: where the scenario can run."""

    id: str
    title: str
    document: str
    variants: tuple[str, ...]
    worlds: tuple[str, ...]

    @property
    def group(self) -> str:
        return next((title for begins, title in GROUPS.items() if self.document.startswith(begins)), OTHER)


def all_scenarios() -> list[str]:
    """Return the ids of all files."""
    names = (entry.name for entry in resources.files("milena.lab.scenarios").iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))


def all_heads() -> list[Head]:
    """Return the heads of all files, in the order of the groups."""
    folder = resources.files("milena.lab.scenarios")
    heads = [head_of(folder.joinpath(one + SUFFIX).read_text(encoding="utf-8").splitlines()) for one in all_scenarios()]
    order = [*GROUPS.values(), OTHER]
    return sorted(heads, key=lambda head: order.index(head.group))


def head_of(lines: Iterable[str]) -> Head:
    """Return the head of a shipped file. Keys start in the first column, and ``variants`` and ``only`` have one key on
    each line, indented by two spaces."""
    values: dict[str, str] = {}
    nested: dict[str, list[str]] = {}
    key = ""
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or line.startswith("   ") or line.lstrip().startswith("#"):
            continue
        if line.startswith("  "):
            nested.setdefault(key, []).append(name.strip())
            continue
        if name in BODIES:
            break
        key = name
        values[key] = value.strip()
    return Head(
        values["id"],
        values["title"],
        values.get("document", ""),
        tuple(nested.get("variants", [PLAIN])),
        tuple(nested.get("only", WORLDS)),
    )
