"""AssignReplicasToDirs (key 73), version 0: a broker reports the log directory of each replica. KIP-858."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from milena.controller.commands.directories import assign
from milena.controller.state.partition_index import PartitionKey
from milena.node.api import Reply, RequestContext
from milena.protocol.errors import ErrorCode
from milena.protocol.types import ZERO_UUID, NodeId

if TYPE_CHECKING:
    from milena.controller.state.result import Committing
    from milena.protocol.apis import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponseFields,
        AssignReplicasToDirsResponsePartitionDataFields,
        AssignReplicasToDirsResponseTopicDataFields,
    )


def handle(
    node: Committing, ctx: RequestContext, request: AssignReplicasToDirsRequest
) -> Reply[AssignReplicasToDirsResponseFields]:
    assignments = {
        directory.id_ or ZERO_UUID: [
            (topic.topic_id or ZERO_UUID, partition.partition_index)
            for topic in directory.topics
            for partition in topic.partitions
        ]
        for directory in request.directories
    }
    return node.commit(assign(node.state, NodeId(request.broker_id), request.broker_epoch, assignments), _answer)


def _answer(outcomes: Mapping[UUID, Mapping[PartitionKey, ErrorCode]]) -> AssignReplicasToDirsResponseFields:
    return {
        "error_code": 0,
        "directories": [{"id": directory, "topics": _topics(errors)} for directory, errors in outcomes.items()],
    }


def _topics(errors: Mapping[PartitionKey, ErrorCode]) -> list[AssignReplicasToDirsResponseTopicDataFields]:
    topics: dict[UUID, list[AssignReplicasToDirsResponsePartitionDataFields]] = {}
    for (topic_id, number), error in errors.items():
        topics.setdefault(topic_id, []).append({"partition_index": number, "error_code": int(error)})
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()]
