"""Proposals of leaders to the controller."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from milena.controller.commands.alter_partition import Outcome, Proposal, alter_partitions
from milena.protocol.types import NodeId
from tests.unit.controller.cluster import Cluster


def propose(cluster: Cluster, *isr: int, sender: int = 1, topic: UUID | None = None, **fields: Any) -> Outcome:
    """Propose an ISR with the epochs that are right, but for ``fields``; the outcome, its records written."""
    present = cluster.partition()
    brokers = cluster.state.image.brokers
    epochs = fields.pop("epochs", {})
    request: dict[str, Any] = {
        "partition": 0,
        "leader_epoch": present.leader_epoch,
        "partition_epoch": present.partition_epoch,
        "isr": tuple((NodeId(m), epochs.get(m, brokers[m].epoch if m in brokers else -1)) for m in isr),
    }
    proposal = Proposal(**(request | fields))
    topic_id = topic or cluster.state.image.topics["t"].id
    epoch = brokers[sender].epoch
    ((_, (outcome,)),) = cluster.commit(alter_partitions(cluster.state, sender, epoch, [(topic_id, [proposal])]))
    return outcome
