"""The file ``quorum-state``: the epoch and the leader of the metadata log, in Kafka's format for kraft.version 0."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from milena.protocol.types import LeaderEpoch, NodeId

FILE_NAME: Final = "quorum-state"
NO_NODE: Final = NodeId(-1)


class CorruptQuorumState(ValueError):
    """The file is not a valid quorum state."""


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The latest epoch that this node knows, and its leader. ``voters`` are node ids."""

    epoch: LeaderEpoch
    leader: NodeId
    voters: tuple[NodeId, ...]


def encode_quorum_state(state: QuorumState) -> bytes:
    return json.dumps(
        {
            "clusterId": "",
            "leaderId": state.leader,
            "leaderEpoch": state.epoch,
            "votedId": NO_NODE,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in state.voters],
            "data_version": 0,
        },
        separators=(",", ":"),
    ).encode()


def decode_quorum_state(data: bytes) -> QuorumState:
    """Decode version 0. Raises CorruptQuorumState, also for version 1 (dynamic quorums), which has no voters."""
    try:
        fields = json.loads(data)
        voters = tuple(NodeId(int(voter["voterId"])) for voter in fields.get("currentVoters") or ())
        return QuorumState(LeaderEpoch(int(fields["leaderEpoch"])), NodeId(int(fields["leaderId"])), voters)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptQuorumState(f"not a quorum state: {error}") from None
