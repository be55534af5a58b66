"""From which replica a consumer had better read (KIP-392, ``replica.selector.class``).

Kafka's RackAwareReplicaSelector: one in the consumer's rack, the leader if it is there, else the replica that has most.
Only replicas in the ISR that have the offset are candidates; if none is nearer, the leader serves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from milena.protocol.types import NodeId, Offset


class Candidate(NamedTuple):
    """A replica as the leader sees it. ``behind_ms``: since it was caught up last."""

    node: NodeId
    rack: str | None
    log_end: Offset
    behind_ms: int


def nearest(rack: str, leader_rack: str | None, followers: Iterable[Candidate]) -> NodeId | None:
    """The follower to read from, None for the leader."""
    if not rack or leader_rack == rack:
        return None
    near = [follower for follower in followers if follower.rack == rack]
    if not near:
        return None
    return max(near, key=lambda follower: (follower.log_end, -follower.behind_ms, follower.node)).node
