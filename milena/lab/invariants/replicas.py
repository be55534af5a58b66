"""Rules for single replicas: the order of a log's offsets, values that must not decrease, one leader per leader
epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from milena.lab.invariants.broken import demand

PartitionKey: TypeAlias = tuple[UUID, int]
"""Topic id and partition number: a topic that is created again has another id."""


@dataclass(frozen=True, slots=True)
class ObservedReplica:
    """The state of one replica at one time. ``run`` is the number of its broker's process."""

    broker: int
    run: int
    key: PartitionKey
    name: str
    leads: bool
    leader_epoch: int
    partition_epoch: int
    log_start: int
    local_start: int
    high_watermark: int
    log_end: int

    def __str__(self) -> str:
        return f"{self.name} of broker {self.broker}"


class ReplicaRules:
    """Compares each replica with its earlier states, and with the others."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, PartitionKey], ObservedReplica] = {}
        self._leaders: dict[tuple[PartitionKey, int], ObservedReplica] = {}

    def check(self, replica: ObservedReplica) -> bool:
        """Check a replica. Returns whether it leads in a leader epoch in which it was not observed as leader before.
        Raises InvariantBroken."""
        one = replica
        demand(
            one.log_start <= one.local_start <= one.high_watermark <= one.log_end,
            one,
            f"log start {one.log_start}, local log start {one.local_start}, high watermark {one.high_watermark}, "
            f"log end {one.log_end} are out of order",
        )
        before = self._last.get((one.broker, one.key))
        self._last[one.broker, one.key] = one
        if before is not None and before.run == one.run:
            self._compare(before, one)
        return one.leads and self._is_elected(one)

    def _compare(self, before: ObservedReplica, now: ObservedReplica) -> None:
        epochs = (before.leader_epoch, now.leader_epoch)
        demand(epochs[0] <= epochs[1], now, f"leader epoch {epochs[1]} after {epochs[0]}")
        versions = (before.partition_epoch, now.partition_epoch)
        demand(versions[0] <= versions[1], now, f"partition epoch {versions[1]} after {versions[0]}")
        if before.leads and now.leads and before.leader_epoch == now.leader_epoch:
            marks = (before.high_watermark, now.high_watermark)
            demand(marks[0] <= marks[1], now, f"the leader's high watermark is {marks[1]} after {marks[0]}")

    def _is_elected(self, now: ObservedReplica) -> bool:
        leader = self._leaders.get((now.key, now.leader_epoch))
        if leader is None:
            self._leaders[now.key, now.leader_epoch] = now
            return True
        demand(
            leader.broker == now.broker,
            now,
            f"it leads in leader epoch {now.leader_epoch}, in which broker {leader.broker} led",
        )
        return False
