"""AlterPartition (key 56), versions 2-3: a leader changes the ISRs of its partitions.

v3 names each ISR member with its broker epoch (KIP-903); in v2 no epoch is checked. KIPs: 497, 704, 841, 903.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from uuid import UUID

from milena.controller.commands.alter_partition import EPOCH_UNCHECKED, Outcome, Proposal, alter_partitions
from milena.controller.state.result import Committing
from milena.node.api import Reply, RequestContext
from milena.protocol.errors import ErrorCode
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

Outcomes: TypeAlias = list[tuple[UUID, list[Outcome]]]


class Needs(Committing, Protocol):
    """What this handler uses of its controller."""

    @property
    def client_log(self) -> LimitedLog: ...


def handle(node: Needs, ctx: RequestContext, request: AlterPartitionRequest) -> Reply[AlterPartitionResponseFields]:
    if not request.topics:
        return _answer([])
    proposals = [
        (topic.topic_id or ZERO_UUID, [_proposal(ctx.version, partition) for partition in topic.partitions])
        for topic in request.topics
    ]
    result = alter_partitions(node.state, request.broker_id, request.broker_epoch, proposals)
    _log_refusals(node, request.broker_id, result.response)
    return node.commit(result, _answer)


def _log_refusals(node: Needs, broker: int, outcomes: Outcomes) -> None:
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
