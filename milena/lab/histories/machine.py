"""Measurements of the machine that a run used: they separate an overloaded machine from a broken product.

A measured stall exempts liveness checks only (``progress``): a partition or group that made no progress while the
machine stalled, or while it recovered from the stall, is not judged. All other checks ignore these events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MachineStall:
    """From ``begun`` to ``ended`` (seconds of the run's clock) timers of the runner fired late, by ``seconds`` in all.
    ``load``: the highest load average over one minute. ``recovers``: seconds after ``ended`` in which the cluster may
    still make no progress, because sessions have expired."""

    begun: float
    ended: float
    seconds: float
    load: float
    recovers: float


@dataclass(frozen=True, slots=True)
class SessionTimeout:
    """At ``at`` the other brokers no longer listed ``broker``, and no fault explains it."""

    broker: int
    at: float


class MachineStalls:
    """The stalls of a history."""

    def __init__(self) -> None:
        self._stalls: list[MachineStall] = []

    def add(self, stall: MachineStall) -> None:
        self._stalls.append(stall)

    @property
    def spans(self) -> list[tuple[float, float]]:
        """The times in which a lack of progress is not judged."""
        return [(one.begun, one.ended + one.recovers) for one in self._stalls]

    def seconds_within(self, begun: float, ended: float) -> float:
        """Return the seconds by which timers were late in stalls that can have delayed work between these times."""
        return total(one for one in self._stalls if one.begun <= ended and one.ended + one.recovers >= begun)


def total(stalls: Iterable[MachineStall]) -> float:
    """Return the seconds by which timers were late in all stalls."""
    return sum((one.seconds for one in stalls), 0.0)
