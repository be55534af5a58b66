"""What the runner has seen of the cluster. Reports draw it; no check uses it."""

from __future__ import annotations

from dataclasses import dataclass

from milena.protocol.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """At ``at`` a partition had this leader (-1: none), leader epoch and ISR for the first time since another one."""

    partition: TopicPartition
    at: float
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """At ``at`` a broker was seen as fenced or not for the first time since the opposite."""

    broker: int
    at: float
    fenced: bool
