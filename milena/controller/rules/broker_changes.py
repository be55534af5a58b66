"""Partition changes when a broker joins, is fenced, shuts down, or loses a log directory.

Each function returns records, including the record of the broker itself, in Kafka's order. Without ELR, a partition
that loses its last in-sync replica keeps its ISR and has no leader until that broker returns (docs/kafka-semantics.md:
Broker lifecycle, Partition changes).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from milena.controller.rules.leader_choice import Acceptable, Election, acceptance
from milena.controller.rules.partition_change import ChangeRules, PartitionChange, PartitionChangeBuilder, Targets
from milena.controller.state.partition_index import PartitionKey
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import BrokerImage, PartitionImage, TopicImage
from milena.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from milena.protocol.types import LOST_DIR, RESERVED_DIRECTORIES, NodeId

FENCE = 1
UNFENCE = -1
ENTER_SHUTDOWN = 1


def change_of(
    state: ControllerState, topic: TopicImage, partition: PartitionImage, acceptable: Acceptable, targets: Targets
) -> PartitionChange | None:
    """Return the change of a partition under the cluster's features and the topic's configuration; None if there is
    none."""
    elr_enabled = state.elr_enabled
    rules = ChangeRules(
        elr_enabled=elr_enabled,
        min_isr=state.min_isr(topic.name, len(partition.replicas)) if elr_enabled else 1,
        bump_on_isr_shrink=state.bump_on_isr_shrink,
        with_directories=state.directories_supported,
        default_directory=state.default_directory,
    )
    return PartitionChangeBuilder(partition, acceptable, targets, rules).build()


def partition_changes(
    state: ControllerState,
    keys: Iterable[PartitionKey],
    *,
    leaving: NodeId | None = None,
    joining: NodeId | None = None,
    unclean_shutdown: NodeId | None = None,
    brokers: Mapping[int, BrokerImage] | None = None,
) -> list[PartitionChangeRecord]:
    """Return the new ISRs and leaders of the partitions ``keys`` after a broker has left, joined, or shut down
    uncleanly. ``brokers``: the registrations after the change, if they differ from the image."""
    gone = tuple(broker for broker in (leaving, unclean_shutdown) if broker is not None)
    changes = []
    for topic_id, number in keys:
        topic = state.image.topics_by_id[topic_id]
        partition = topic.partitions[number]
        acceptable = acceptance(brokers or state.image.brokers, partition, joining=joining, leaving=gone)
        targets = Targets(
            isr=tuple(member for member in partition.isr if member not in gone),
            election=Election.UNCLEAN if state.unclean_elections(topic.name) else Election.ONLINE,
            unclean_shutdown=() if unclean_shutdown is None else (unclean_shutdown,),
        )
        change = change_of(state, topic, partition, acceptable, targets)
        if change is not None:
            changes.append(change.record(topic_id, number))
    return changes


def broker_fenced(state: ControllerState, broker: BrokerImage) -> list[MetadataRecord]:
    """Return the partition changes, then the fencing record."""
    return [
        *partition_changes(state, state.index.in_isr(broker.id), leaving=broker.id),
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE),
    ]


def broker_unfenced(state: ControllerState, broker: BrokerImage, offline: Sequence[UUID] = ()) -> list[MetadataRecord]:
    """Unfence the broker, and let it lead partitions without a leader, except those whose replica is in a directory in
    ``offline``, which goes offline in the same batch."""
    brokers = state.image.brokers
    if offline and broker.log_dirs:
        remaining = tuple(directory for directory in broker.log_dirs if directory not in offline)
        brokers = {**brokers, broker.id: replace(broker, log_dirs=remaining or (LOST_DIR,))}  # () means unknown
    return [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE),
        *partition_changes(state, state.index.leaderless(), joining=broker.id, brokers=brokers),
    ]


def broker_stopping(state: ControllerState, broker: BrokerImage) -> list[MetadataRecord]:
    """Begin or continue a controlled shutdown: other brokers take over the broker's partitions."""
    records: list[MetadataRecord] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=ENTER_SHUTDOWN
            )
        )
    return records + partition_changes(state, state.index.in_isr(broker.id), leaving=broker.id)


def broker_restarted(
    state: ControllerState, broker_id: NodeId, *, clean: bool, log_dirs: Collection[UUID]
) -> list[MetadataRecord]:
    """A new incarnation registers. After an unclean shutdown it may have lost acknowledged records; records in
    directories that are no longer among its ``log_dirs`` are lost for certain (Kafka does not check this)."""
    in_isr = list(state.index.in_isr(broker_id))
    if not state.elr_enabled:
        return list(partition_changes(state, in_isr, leaving=broker_id))
    in_elr = list(state.index.in_elr(broker_id))

    def is_lost(key: PartitionKey) -> bool:
        directory = state.image.topics_by_id[key[0]].partitions[key[1]].directory_of(broker_id)
        return not clean or (
            directory is not None and directory.int >= RESERVED_DIRECTORIES and directory not in log_dirs
        )

    return [
        *partition_changes(state, filter(is_lost, in_isr), unclean_shutdown=broker_id),
        *partition_changes(state, filter(is_lost, in_elr), unclean_shutdown=broker_id),
        *partition_changes(state, [key for key in in_isr if not is_lost(key)], leaving=broker_id),
    ]


def broker_unregistered(state: ControllerState, broker: BrokerImage) -> list[MetadataRecord]:
    return [
        *partition_changes(state, state.index.in_isr(broker.id), leaving=broker.id),
        *partition_changes(state, state.index.in_elr(broker.id), leaving=broker.id),
        UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch),
    ]


def directories_offline(state: ControllerState, broker: BrokerImage, offline: Sequence[UUID]) -> list[MetadataRecord]:
    """Remove the broker from the ISRs of partitions in newly offline directories."""
    newly = [directory for directory in broker.log_dirs if directory in offline]
    if not newly:
        return []
    records: list[MetadataRecord] = []
    for directory in newly:
        records += partition_changes(state, state.index.in_directory(directory), leaving=broker.id)
    remaining = tuple(directory for directory in broker.log_dirs if directory not in offline)
    records.append(BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=remaining))
    return records


def directories_cordoned(broker: BrokerImage, cordoned: Sequence[UUID] | None) -> list[MetadataRecord]:
    """Record the directories that accept no new replicas (KIP-1066). None: the request has no field for them."""
    if cordoned is None or (broker.cordoned is not None and set(cordoned) == set(broker.cordoned)):
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=tuple(cordoned)
        )
    ]
