"""AlterPartition at a controller that lags: its first response is the one from before the last leader change.

Before KAFKA-14154 a controller answered FENCED_LEADER_EPOCH for every leader epoch but its own, even for a later one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from milena.config.node_config import NodeConfig
from milena.controller.apis import alter_partition
from milena.controller.commands.alter_partition import Proposal, check
from milena.controller.server import Controller
from milena.node.api import Answer, ApiTable, RequestContext
from milena.protocol.errors import ErrorCode
from milena.protocol.types import ZERO_UUID, LeaderEpoch, NodeId
from milena.runtime.context import Runtime

if TYPE_CHECKING:
    from milena.protocol.apis import (
        AlterPartitionRequest,
        AlterPartitionRequestPartitionData,
        AlterPartitionRequestTopicData,
    )


class Behind(Controller):
    """``fences``: answer as before KAFKA-14154."""

    def __init__(self, runtime: Runtime, config: NodeConfig, apis: ApiTable, *, fences: bool) -> None:
        super().__init__(runtime, config, apis=apis)
        self.fences = fences
        self.behind = True


def handle(node: Behind, ctx: RequestContext, request: AlterPartitionRequest) -> Answer:
    if not node.behind:
        return alter_partition.handle(node, ctx, request)
    node.behind = False
    topics = [
        {
            "topic_id": topic.topic_id,
            "partitions": [
                {"partition_index": one.partition_index, "error_code": int(refusal(node, request, topic, one))}
                for one in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    return {"error_code": 0, "topics": topics}


def refusal(
    node: Behind,
    request: AlterPartitionRequest,
    topic: AlterPartitionRequestTopicData,
    partition: AlterPartitionRequestPartitionData,
) -> ErrorCode:
    """Return the error that the rules give if the controller still has the previous leader epoch."""
    image = node.state.image
    present = image.topics_by_id[topic.topic_id or ZERO_UUID].partitions[partition.partition_index]
    older = replace(present, leader_epoch=LeaderEpoch(present.leader_epoch - 1))
    proposal = Proposal(
        partition=partition.partition_index,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=tuple((NodeId(one.broker_id), one.broker_epoch) for one in partition.new_isr_with_epochs),
    )
    refused = check(image.brokers, request.broker_id, older, proposal)
    assert refused is not None, "the proposal has a later leader epoch"
    return ErrorCode.FENCED_LEADER_EPOCH if node.fences else refused.code
