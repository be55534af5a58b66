"""Reassignments of partitions to other replicas (KIP-455, KIP-860).

A reassignment adds the new replicas to the present ones and records which are being added and which removed. The ISR
change that brings all added replicas into the ISR also completes it (``controller.rules.partition_change``). A
reassignment that only reorders or only removes replicas completes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from milena.controller.rules.broker_changes import change_of
from milena.controller.rules.leader_choice import Election, acceptance
from milena.controller.rules.partition_change import Targets
from milena.controller.rules.placement import check_assignment
from milena.controller.rules.tiered_hosts import check_hosts
from milena.controller.state.result import MAX_RECORDS_PER_BATCH, Result
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import TOPIC_RESOURCE, PartitionImage, TopicImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import PartitionChangeRecord
from milena.protocol.types import NodeId


@dataclass(frozen=True, slots=True)
class Target:
    """The requested replicas of a partition; None cancels its reassignment."""

    partition: int
    replicas: Sequence[NodeId] | None


Reassigned: TypeAlias = list[tuple[str, list[tuple[int, KafkaError | None]]]]
"""By topic: each partition with its error, or None if it is accepted."""


def alter_reassignments(
    state: ControllerState, requested: Sequence[tuple[str, Sequence[Target]]], *, allow_factor_change: bool = True
) -> Result[Reassigned]:
    """Start, change or cancel reassignments, each partition for itself. If a partition is in the request several times,
    its
    last valid target counts, since all are computed on the same image. Raises KafkaError(POLICY_VIOLATION)."""
    changes: dict[tuple[str, int], list[PartitionChangeRecord]] = {}
    outcomes: Reassigned = []
    for name, targets in requested:
        results: list[tuple[int, KafkaError | None]] = []
        for target in targets:
            try:
                change = _reassign(state, name, target, allow_factor_change=allow_factor_change)
            except KafkaError as error:
                results.append((target.partition, error.without_traceback()))
            else:
                changes[name, target.partition] = change
                results.append((target.partition, None))
        outcomes.append((name, results))
    records = [record for some in changes.values() for record in some]
    if len(records) > MAX_RECORDS_PER_BATCH:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"The request needs more than {MAX_RECORDS_PER_BATCH} records.")
    return Result(records, outcomes)


def ongoing(
    state: ControllerState, requested: Sequence[tuple[str, Sequence[int]]] | None
) -> list[tuple[str, list[tuple[int, PartitionImage]]]]:
    """Return the partitions among ``requested`` (None: all) that are being reassigned, by topic."""
    if requested is None:
        by_topic: dict[str, list[int]] = {}
        for topic_id, number in state.index.reassigning():
            by_topic.setdefault(state.image.topics_by_id[topic_id].name, []).append(number)
        requested = list(by_topic.items())
    found = []
    for name, numbers in requested:
        topic = state.image.topics.get(name)
        partitions = [] if topic is None else list(_reassigning(topic, numbers))
        if partitions:
            found.append((name, partitions))
    return found


def _reassigning(topic: TopicImage, numbers: Sequence[int]) -> Iterable[tuple[int, PartitionImage]]:
    for number in numbers:
        partition = topic.partitions.get(number)
        if partition is not None and partition.reassigning:
            yield number, partition


def _reassign(
    state: ControllerState, name: str, target: Target, *, allow_factor_change: bool
) -> list[PartitionChangeRecord]:
    topic = state.image.topics.get(name)
    partition = topic.partitions.get(target.partition) if topic is not None else None
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{target.partition}.")
    if target.replicas is None:
        targets = _cancel(state, name, target.partition, partition)
    else:
        check_assignment(state.image.brokers, target.replicas)
        added = set(target.replicas) - set(partition.replicas)
        check_hosts(state, name, state.image.config(TOPIC_RESOURCE, name), added)
        if not allow_factor_change:
            _check_factor(partition, len(target.replicas))
        targets = _change(partition, tuple(target.replicas))
    acceptable = acceptance(state.image.brokers, partition)
    change = change_of(state, topic, partition, acceptable, targets)
    return [] if change is None else [change.record(topic.id, target.partition)]


def _cancel(state: ControllerState, name: str, number: int, partition: PartitionImage) -> Targets:
    """Return to the replicas from before the reassignment. If none of them is in sync, that needs an unclean
    election."""
    if not partition.reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name}-{number} is not being reassigned.")
    replicas = tuple(r for r in partition.replicas if r not in partition.adding)
    isr = tuple(r for r in partition.isr if r not in partition.adding)
    unclean = state.unclean_elections(name)
    if not isr:
        if not replicas:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"All replicas of {name}-{number} are being added.")
        if not unclean:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{name}-{number} cannot be cancelled without an unclean election: none of its former "
                "replicas is in sync.",
            )
        isr = replicas[:1]
    election = Election.UNCLEAN if unclean else Election.ONLINE
    return Targets(isr=isr, replicas=replicas, removing=(), adding=(), election=election)


def _change(partition: PartitionImage, target: tuple[NodeId, ...]) -> Targets:
    """Replicas to be removed stay at the end of the list until the reassignment completes. Empty ``adding`` and
    ``removing`` are left out, so that they do not clear an earlier reassignment's, as in Kafka."""
    removing = tuple(sorted(set(partition.replicas) - set(target)))
    adding = tuple(sorted(set(target) - set(partition.replicas)))
    return Targets(replicas=target + removing, removing=removing or None, adding=adding or None)


def _check_factor(partition: PartitionImage, requested: int) -> None:
    """KIP-860: compare with the replicas that remain when the ongoing reassignment has completed."""
    present = len({*partition.replicas, *partition.adding} - set(partition.removing))
    if present != requested:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor would change from {present} to {requested}."
        )
