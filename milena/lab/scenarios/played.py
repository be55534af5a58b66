"""A step as it was played: what was expected beside what was found, and how that is drawn."""

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
    """By replica (``A``, ``A/u-1``), of those that the step expects something of."""
    found: Mapping[str, Table]
    """All replicas as last seen, in the document's epochs."""
    tier_expected: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """``remote``, ``metadata`` and ``states``, drawn."""
    tier_found: Mapping[str, Sequence[str]] = field(default_factory=dict)
    also: Sequence[str] = ()
    """What else was compared, as the scenario has it."""
    wrong: str | None = None
    """What was not as expected; None if all was."""

    def replicas(self) -> str:
        """All replicas as found."""
        return side_by_side({name: table.lines() for name, table in self.found.items()}) if self.found else ""

    def compared(self) -> str:
        """Each replica, and each part of the tier, as expected and as found."""
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
"""Is told of each step as it has been played, and of the one that failed."""
