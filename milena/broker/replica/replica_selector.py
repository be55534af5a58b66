"""The choice of the replica that a consumer should read from (KIP-392, ``replica.selector.class``).

Kafka's RackAwareReplicaSelector: in the consumer's rack, the leader if it is there, else the replica with the highest
log end offset. Candidates are in the ISR and have the offset; if there is none in the rack, the leader serves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from milena.protocol.types import NodeId, Offset


class Candidate(NamedTuple):
    """A replica as the leader sees it. ``behind_ms``: time since it was last caught up."""

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
