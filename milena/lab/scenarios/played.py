"""A step after its run: expected and actual state, and how they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from milena.lab.scenarios.tables import Table, side_by_side

EXPECTED: Final = "expected"
ACTUAL: Final = "actual"


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """One step of a run. ``place`` names the scenario, the variant and the step."""

    place: str
    expected: Mapping[str, Table]
    """Expected tables by replica (``A``, ``A/u-1``)."""
    found: Mapping[str, Table]
    """The last state of all replicas, in the document's epochs."""
    tier_expected: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """``remote``, ``metadata`` and ``states``, as lines."""
    tier_found: Mapping[str, Sequence[str]] = field(default_factory=dict)
    also: Sequence[str] = ()
    """The other expectations, as in the scenario."""
    wrong: str | None = None
    """The first difference; None if the step passed."""

    def replicas(self) -> str:
        """Return all replicas as lines."""
        return side_by_side({name: table.lines() for name, table in self.found.items()}) if self.found else ""

    def compared(self) -> str:
        """Return each replica, and each part of the tier, as expected and as found."""
        columns: dict[str, list[str]] = {}
        for name, found in self.found.items():
            if (table := self.expected.get(name)) is None:
                columns[name] = found.lines()
            else:
                columns[f"{name} {EXPECTED}"] = table.expected_lines()
                columns[f"{name} {ACTUAL}"] = [*found.lines(), *found.beside(table)]
        tier: dict[str, Sequence[str]] = {}
        for name, lines in self.tier_expected.items():
            tier |= {f"{name} {EXPECTED}": lines, f"{name} {ACTUAL}": self.tier_found.get(name, ())}
        return "\n\n".join(side_by_side(drawn) for drawn in (columns, tier) if drawn)


Watch: TypeAlias = Callable[[PlayedStep], object]
"""Called with each step after its run, including a failed one."""
