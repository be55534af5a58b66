"""Followers that are about to ask for partitions which this broker has just begun to lead.

A follower's fetch waits at its leader for up to ``replica.fetch.wait.max.ms``, and cannot name a partition that was
not led here when it was sent: a new partition's first record, and the first one after an election, would wait for
that long. So the fetches that wait are answered when a leadership begins, and the next ones wait only shortly, until
every follower must have heard of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from milena.broker.waiting.purgatory import Purgatory
from milena.protocol.types import NodeId
from milena.runtime.clock import Clock

EXPECTED: Final = 0.5
"""Seconds after the begin of a leadership, as long as a fetch waits by default."""
SHORT_WAIT: Final = 0.01


class FetchesOf(NamedTuple):
    """The key in the purgatory of one follower's waiting fetches."""

    replica: NodeId


class ExpectedFollowers:
    """Which followers have something new to ask for."""

    def __init__(self, clock: Clock, purgatory: Purgatory, node_id: NodeId) -> None:
        self._clock = clock
        self._purgatory = purgatory
        self._node_id = node_id
        self._until: dict[NodeId, float] = {}

    def expect(self, replicas: Iterable[NodeId]) -> None:
        """A leadership begins here over these replicas."""
        until = self._clock.monotonic() + EXPECTED
        for replica in replicas:
            if replica != self._node_id:
                self._until[replica] = until
                self._purgatory.changed(FetchesOf(replica))

    def longest_wait(self, replica: NodeId, seconds: float) -> float:
        """How long a follower's fetch may wait that asks for ``seconds``."""
        until = self._until.get(replica)
        if until is None:
            return seconds
        if self._clock.monotonic() >= until:
            del self._until[replica]
            return seconds
        return min(seconds, SHORT_WAIT)
