"""The log directory of each replica, as brokers with several directories report it (KIP-858)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias
from uuid import UUID

from milena.controller.rules.broker_changes import change_of
from milena.controller.rules.leader_choice import Election, acceptance
from milena.controller.rules.partition_change import Targets
from milena.controller.state.partition_index import PartitionKey
from milena.controller.state.result import Result
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import BrokerImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import PartitionChangeRecord
from milena.protocol.types import NodeId

Assignments: TypeAlias = Mapping[UUID, Sequence[PartitionKey]]
"""Partitions by the id of the log directory."""


def assign(
    state: ControllerState, broker_id: NodeId, broker_epoch: int, assignments: Assignments
) -> Result[dict[UUID, dict[PartitionKey, ErrorCode]]]:
    """Record each replica's directory; a replica in an offline directory leaves the ISR. If a replica is in the request
    several times, the last directory counts.

    Raises KafkaError: UNSUPPORTED_VERSION, STALE_BROKER_EPOCH.
    """
    if not state.directories_supported:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "AssignReplicasToDirs needs metadata.version 3.7-IV2.")
    broker = state.checked_broker(broker_id, broker_epoch)
    records: dict[PartitionKey, PartitionChangeRecord | None] = {}
    outcomes: dict[UUID, dict[PartitionKey, ErrorCode]] = {}
    for directory, keys in assignments.items():
        outcomes[directory] = {}
        for key in keys:
            outcomes[directory][key] = error = _check(state, broker_id, key)
            if error is ErrorCode.NONE:
                records[key] = _assigned(state, broker, directory, key)
    return Result([record for record in records.values() if record is not None], outcomes, atomic=False)


def _check(state: ControllerState, broker_id: int, key: PartitionKey) -> ErrorCode:
    topic = state.image.topics_by_id.get(key[0])
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(key[1])
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _assigned(
    state: ControllerState, broker: BrokerImage, directory: UUID, key: PartitionKey
) -> PartitionChangeRecord | None:
    """A replica that leaves an offline or unknown directory may be elected if its partition has no leader. A replica in
    an offline directory leaves the ISR in the same record: two records would be decided on the same state, and could
    contradict each other."""
    topic = state.image.topics_by_id[key[0]]
    partition = topic.partitions[key[1]]
    targets = Targets(directories={broker.id: directory})
    leaving: tuple[NodeId, ...] = ()
    if not broker.has_online_dir(directory):
        leaving = (broker.id,)
        targets = replace(
            targets,
            isr=tuple(member for member in partition.isr if member != broker.id),
            election=Election.UNCLEAN if state.unclean_elections(topic.name) else Election.ONLINE,
        )
    acceptable = acceptance(state.image.brokers, partition, leaving=leaving, moved={broker.id: directory})
    change = change_of(state, topic, partition, acceptable, targets)
    return None if change is None else change.record(*key)
