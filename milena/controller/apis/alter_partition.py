"""AlterPartition (key 56), versions 2-3: a leader changes the ISRs of its partitions.

v3 names each ISR member with its broker epoch (KIP-903); in v2 no epoch is checked. KIPs: 497, 704, 841, 903.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from uuid import UUID

from milena.controller.commands.alter_partition import EPOCH_UNCHECKED, Outcome, Proposal, alter_partitions
from milena.controller.state.result import Committing, Result
from milena.node.api import Reply, RequestContext
from milena.protocol.cooperative import Cooperative
from milena.protocol.errors import ErrorCode
from milena.protocol.metadata_records import PartitionChangeRecord
from milena.protocol.types import ZERO_UUID, NodeId

if TYPE_CHECKING:
    from milena.protocol.apis import (
        AlterPartitionRequest,
        AlterPartitionRequestPartitionData,
        AlterPartitionResponseFields,
        AlterPartitionResponsePartitionDataFields,
    )
    from milena.runtime.limited_log import LimitedLog

EPOCHS_SINCE: Final = 3
PARTITIONS_PER_YIELD: Final = 500
"""Partitions that are altered between two yields; their records are one write."""

Outcomes: TypeAlias = list[tuple[UUID, list[Outcome]]]
Proposals: TypeAlias = list[tuple[UUID, list[Proposal]]]


class Needs(Committing, Protocol):
    """What this handler uses of its controller."""

    @property
    def client_log(self) -> LimitedLog: ...


def handle(node: Needs, ctx: RequestContext, request: AlterPartitionRequest) -> Reply[AlterPartitionResponseFields]:
    if not request.topics:
        return _answer([])
    parts = _parts(ctx.version, request)
    first, second = next(parts), next(parts, None)
    if second is not None:
        return _alter_parts(node, request, chain((first, second), parts))
    result = alter_partitions(node.state, request.broker_id, request.broker_epoch, first)
    _log_rejections(node, request.broker_id, result.response)
    return node.commit(result, _answer)


def _parts(version: int, request: AlterPartitionRequest) -> Iterator[Proposals]:
    """Yield the proposals, some at a time."""
    part: Proposals = []
    size = 0
    for topic in request.topics:
        for first in range(0, max(len(topic.partitions), 1), PARTITIONS_PER_YIELD):
            some = topic.partitions[first : first + PARTITIONS_PER_YIELD]
            part.append((topic.topic_id or ZERO_UUID, [_proposal(version, partition) for partition in some]))
            size += len(some)
            if size >= PARTITIONS_PER_YIELD:
                yield part
                part, size = [], 0
    if part:
        yield part


def _alter_parts(
    node: Needs, request: AlterPartitionRequest, parts: Iterable[Proposals]
) -> Cooperative[AlterPartitionResponseFields | Awaitable[AlterPartitionResponseFields]]:
    """Decide on each part with the metadata of that moment: the partitions of a request do not depend on each other."""
    outcomes: Outcomes = []
    altered: set[tuple[UUID, int]] = set()
    for part in parts:
        result = alter_partitions(node.state, request.broker_id, request.broker_epoch, part, altered=altered)
        _log_rejections(node, request.broker_id, result.response)
        node.write(result)
        changes = (record for record in result.records if isinstance(record, PartitionChangeRecord))
        altered.update((change.topic_id, change.partition_id) for change in changes)
        for topic_id, of_topic in result.response:
            if outcomes and outcomes[-1][0] == topic_id:
                outcomes[-1][1].extend(of_topic)
            else:
                outcomes.append((topic_id, of_topic))
        yield
    return node.commit(Result((), outcomes), _answer)


def _log_rejections(node: Needs, broker: int, outcomes: Outcomes) -> None:
    for topic_id, partitions in outcomes:
        for outcome in partitions:
            if outcome.code is ErrorCode.NONE:
                continue
            topic = node.state.image.topics_by_id.get(topic_id)
            node.client_log.info(
                "AlterPartition rejected",
                broker=broker,
                topic=topic.name if topic else str(topic_id),
                partition=outcome.partition,
                error=outcome.code.name,
                reason=outcome.reason,
            )


def _proposal(version: int, partition: AlterPartitionRequestPartitionData) -> Proposal:
    if version >= EPOCHS_SINCE:
        isr = tuple((NodeId(member.broker_id), int(member.broker_epoch)) for member in partition.new_isr_with_epochs)
    else:
        isr = tuple((NodeId(member), EPOCH_UNCHECKED) for member in partition.new_isr)
    return Proposal(
        partition=partition.partition_index,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=isr,
        recovery_state=partition.leader_recovery_state,
    )


def _answer(outcomes: Outcomes) -> AlterPartitionResponseFields:
    return {
        "error_code": 0,
        "topics": [
            {"topic_id": topic_id, "partitions": [_partition(outcome) for outcome in partitions]}
            for topic_id, partitions in outcomes
        ],
    }


def _partition(outcome: Outcome) -> AlterPartitionResponsePartitionDataFields:
    fields: AlterPartitionResponsePartitionDataFields = {
        "partition_index": outcome.partition,
        "error_code": int(outcome.code),
    }
    if (registration := outcome.registration) is not None:
        fields |= {
            "leader_id": registration.leader,
            "leader_epoch": registration.leader_epoch,
            "isr": registration.isr,
            "leader_recovery_state": registration.recovery_state,
            "partition_epoch": registration.partition_epoch,
        }
    return fields
