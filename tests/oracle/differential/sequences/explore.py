"""Plays many scripts and reports each kind of difference once, with its smallest script."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.oracle.differential.sequences.generate import script
from tests.oracle.differential.sequences.run import Outcome, Player
from tests.oracle.differential.sequences.script import Script, written
from tests.oracle.differential.sequences.shrink import shrunk

PATIENCE: Final = 60.0
"""Seconds in which a script is minimised: a script with a missing response takes long in each try."""


@dataclass
class Report:
    """Counts of scripts by outcome, and the new differences as text."""

    played: int = 0
    agreed: int = 0
    compared: int = 0
    known: Counter[str] = field(default_factory=Counter)
    flaky: list[str] = field(default_factory=list)
    differences: dict[str, str] = field(default_factory=dict)
    again: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in self.known.most_common())
        lines = [
            f"{self.played} sequences, {self.compared} answers compared: {self.agreed} agreed to the end, "
            f"{sum(self.again.values())} differed, {len(self.flaky)} differed once and not again; met of what is "
            f"known: {kinds or 'nothing'}"
        ]
        return "\n\n".join([*lines, *self.differences.values(), *self.flaky])


def explore(
    player: Player, seed: int, numbers: Iterable[int], say: Callable[[str], None] = lambda text: None
) -> Report:
    """Play the scripts of a seed with these numbers."""
    report = Report()
    for number in numbers:
        steps = script(seed, number)
        found = player.play(steps)
        report.played += 1
        report.compared += found.compared
        report.known.update(found.known)
        if found.differs:
            _settle(player, report, f"seed {seed}, sequence {number}", steps, found, say)
        elif not found.stopped:
            report.agreed += 1
        if report.played % 100 == 0:
            say(str(report).partition("\n")[0])
    return report


def _settle(
    player: Player, report: Report, title: str, steps: Script, found: Outcome, say: Callable[[str], None]
) -> None:
    report.again[found.signature] += 1
    if found.signature in report.differences:
        return

    until = time.monotonic() + PATIENCE

    def shows(candidate: Script) -> bool:
        return time.monotonic() < until and player.play(candidate).signature == found.signature

    if not shows(steps):
        report.flaky.append(f"{title}, not seen again:\n{described(steps, found)}")
        say(report.flaky[-1])
        return
    assert found.at is not None
    small = shrunk(steps[: found.at + 1] if shows(steps[: found.at + 1]) else steps, shows)
    final = player.play(small)
    report.differences[found.signature] = f"{title}:\n{described(small, final if final.differs else found)}"
    say(report.differences[found.signature])


def described(steps: Script, found: Outcome) -> str:
    return "\n".join([found.signature, *found.lines[:6], "script:", written(steps)])
