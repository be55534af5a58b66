"""Which partitions must accept writes while faults last: a function of the faults, the leader, the ISR and
``min.insync.replicas``.

A broker that is away leaves the ISR when its session expires, and a follower that does not fetch when it lags for too
long; both need the controller. Then the partition is writable if ``min.insync.replicas`` are left, whichever leads it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from milena.lab.chaos.faults import FAULTS, SLACK, Kind, ReplicaEffect, Shape, Step, Trait, has
from milena.protocol.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of a partition when a fault is injected."""

    leader: int
    isr: tuple[int, ...]
    min_isr: int


def effect_of(step: Step, shape: Shape) -> ReplicaEffect:
    """What a fault does to replicas while it lasts."""
    return FAULTS[step.kind].effect(step, shape)


def must_be_writable(
    effects: Sequence[ReplicaEffect], partitions: Mapping[TopicPartition, Replicas]
) -> tuple[TopicPartition, ...]:
    return tuple(sorted(place for place, replicas in partitions.items() if _stays_writable(effects, replicas)))


def _stays_writable(effects: Sequence[ReplicaEffect], partition: Replicas) -> bool:
    if partition.leader < 0 or any(effect.all for effect in effects):
        return False
    isr = frozenset(partition.isr)
    gone = frozenset().union(*(effect.gone for effect in effects))
    hung = frozenset().union(*(effect.hung for effect in effects))
    apart = frozenset().union(*(effect.apart for effect in effects))
    each = frozenset().union(*(effect.each for effect in effects)) & isr or {None}
    if isr & hung:
        return False
    if any(effect.moves for effect in effects) and (gone or hung or apart):
        return False
    if any(effect.frozen for effect in effects) and (
        isr & gone or each != {None} or any(partition.leader in pair and pair <= isr for pair in apart)
    ):
        return False
    return all(_is_enough(isr - gone - {one}, partition, apart) for one in each)


def _is_enough(left: frozenset[int], partition: Replicas, apart: Collection[frozenset[int]]) -> bool:
    leaders = {partition.leader} & left or left
    return bool(leaders) and all(
        sum(frozenset((leader, one)) not in apart for one in left) >= partition.min_isr for leader in leaders
    )


def is_stale(step: Step, shape: Shape) -> bool:
    """Whether a fault leaves a leader that was replaced, does not know it, and answers clients."""
    cut_off = step.kind is Kind.CUT_ONE_WAY and shape.controller in step.nodes
    return cut_off or has(step.kind, Trait.STALE_LEADER)


def recovers(shape: Shape) -> float:
    """Return the seconds after the last fault was mended within which all partitions must accept writes."""
    return shape.session + 1.5 * shape.lag + SLACK
