"""Rules for single replicas: the order of a log's offsets, values that must not decrease, one leader per leader
epoch."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias
from uuid import UUID

from milena.lab.invariants.broken import InvariantBroken

PartitionKey: TypeAlias = tuple[UUID, int]
"""Topic id and partition number: a topic that is created again has another id."""


class ObservedReplica(NamedTuple):
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
        if not one.log_start <= one.local_start <= one.high_watermark <= one.log_end:
            raise InvariantBroken(
                f"{one}: log start {one.log_start}, local log start {one.local_start}, high watermark "
                f"{one.high_watermark}, log end {one.log_end} are out of order"
            )
        before = self._last.get((one.broker, one.key))
        self._last[one.broker, one.key] = one
        if before is not None and before.run == one.run:
            self._compare(before, one)
        return one.leads and self._is_elected(one)

    def _compare(self, before: ObservedReplica, now: ObservedReplica) -> None:
        if now.leader_epoch < before.leader_epoch:
            raise InvariantBroken(f"{now}: leader epoch {now.leader_epoch} after {before.leader_epoch}")
        if now.partition_epoch < before.partition_epoch:
            raise InvariantBroken(f"{now}: partition epoch {now.partition_epoch} after {before.partition_epoch}")
        same_epoch = before.leads and now.leads and before.leader_epoch == now.leader_epoch
        if same_epoch and now.high_watermark < before.high_watermark:
            marks = f"{now.high_watermark} after {before.high_watermark}"
            raise InvariantBroken(f"{now}: the leader's high watermark is {marks}")

    def _is_elected(self, now: ObservedReplica) -> bool:
        leader = self._leaders.get((now.key, now.leader_epoch))
        if leader is None:
            self._leaders[now.key, now.leader_epoch] = now
            return True
        if leader.broker != now.broker:
            raise InvariantBroken(
                f"{now}: it leads in leader epoch {now.leader_epoch}, in which broker {leader.broker} led"
            )
        return False
