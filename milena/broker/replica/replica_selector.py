"""The choice of the replica that a consumer should read from (KIP-392, ``replica.selector.class``).

The rules are those of Kafka's RackAwareReplicaSelector: of the replicas in the consumer's rack, the leader, else the
one with the highest log end offset; the leader if there is none. Candidates are in the ISR and have the offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from milena.protocol.types import NodeId, Offset


class Candidate(NamedTuple):
    """A follower as the leader knows it. ``lag_ms``: time since it was last caught up."""

    node: NodeId
    rack: str | None
    log_end: Offset
    lag_ms: int


def select_replica(rack: str, leader_rack: str | None, followers: Iterable[Candidate]) -> NodeId | None:
    """The follower to read from; None for the leader."""
    if not rack or leader_rack == rack:
        return None
    in_rack = [follower for follower in followers if follower.rack == rack]
    if not in_rack:
        return None
    return max(in_rack, key=lambda follower: (follower.log_end, -follower.lag_ms, follower.node)).node
