"""Shortens the fetches of followers that must add partitions which this broker has just begun to lead.

A follower's fetch waits at its leader for up to ``replica.fetch.wait.max.ms``, and cannot name a partition that this
broker did not lead when the fetch was sent. The first record of a new partition, and the first one after an election,
would wait that long. So waiting fetches are answered when a leadership begins, and later ones wait only briefly, until
every follower should have applied the metadata. Kafka does not do this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from milena.broker.waiting.purgatory import Purgatory
from milena.protocol.types import NodeId
from milena.runtime.clock import Clock

EXPECTED_SECONDS: Final = 0.5
"""Seconds after the start of a leadership in which fetches wait briefly; as long as a fetch waits by default."""
SHORT_WAIT_SECONDS: Final = 0.01


class FollowerFetches(NamedTuple):
    """The purgatory's key for the waiting fetches of one follower."""

    replica: NodeId


class ExpectedFollowers:
    """The followers that should soon fetch new partitions."""

    def __init__(self, clock: Clock, purgatory: Purgatory, node_id: NodeId) -> None:
        self._clock = clock
        self._purgatory = purgatory
        self._node_id = node_id
        self._until: dict[NodeId, float] = {}

    def expect(self, replicas: Iterable[NodeId]) -> None:
        """This broker begins to lead a partition with these replicas."""
        until = self._clock.monotonic() + EXPECTED_SECONDS
        for replica in replicas:
            if replica != self._node_id:
                self._until[replica] = until
                self._purgatory.changed(FollowerFetches(replica))

    def longest_wait(self, replica: NodeId, seconds: float) -> float:
        """How long (s) a follower's fetch may wait whose maximum wait is ``seconds``."""
        until = self._until.get(replica)
        if until is None:
            return seconds
        if self._clock.monotonic() >= until:
            del self._until[replica]
            return seconds
        return min(seconds, SHORT_WAIT_SECONDS)
