"""One fault of a plan, and what it does to the replicas of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from milena.lab.histories.faults import Kind

SLACK: Final = 5.0
"""Seconds for what has no time limit of its own: detection in rounds, metadata, retries of clients, a busy machine."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The facts about the cluster that a plan depends on; times in seconds."""

    brokers: Sequence[int]
    controller: int
    session: float
    """``broker.session.timeout.ms``."""
    lag: float
    """``replica.lag.time.max.ms``."""
    odd: Sequence[str] = ()
    """The wrong answers that the tier's store can give."""


@dataclass(frozen=True, slots=True)
class Step:
    """One fault. ``nodes``: the nodes that have it; for a one-way cut sender and receiver; empty: all brokers, or those
    that the nemesis chooses. ``amount``: seconds of delay or of a jump, or the share of objects. ``text``: which wrong
    answer of the tier's store."""

    kind: Kind
    nodes: tuple[int, ...]
    seconds: float
    amount: float = 0.0
    text: str = ""

    def __str__(self) -> str:
        amount = f" ({self.amount:.2f})" if self.amount else f" ({self.text})" if self.text else ""
        return f"{self.kind.value} {' '.join(map(str, self.nodes))}".rstrip() + f"{amount} for {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault does to the replicas of all partitions while it lasts."""

    gone: frozenset[int] = frozenset()
    """These brokers will be fenced."""
    hung: frozenset[int] = frozenset()
    """These brokers stay in the ISR and answer nothing."""
    apart: frozenset[frozenset[int]] = frozenset()
    """Pairs of brokers that cannot replicate to each other."""
    each: frozenset[int] = frozenset()
    """These brokers are away one after the other."""
    moves: bool = False
    """Replicas are on other brokers than before, as many as are needed."""
    frozen: bool = False
    """The controller changes nothing."""
    all: bool = False
    """No partition has to accept writes."""
