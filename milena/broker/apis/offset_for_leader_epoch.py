"""OffsetForLeaderEpoch (key 23), versions 2-4.

Returns the largest leader epoch up to the requested one and its end offset in the leader's log: the start of the next
epoch, or the log end offset (not the high watermark) for the latest epoch. Both are -1, without an error, if the log
has no such epoch. Only leaders answer. KIPs: 101, 279, 320.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.node.api import RequestContext
from milena.protocol.errors import KafkaError
from milena.protocol.requests import messages
from milena.protocol.types import LeaderEpoch

if TYPE_CHECKING:
    from milena.broker.replica.partitions import PartitionSet
    from milena.protocol.apis import (
        OffsetForLeaderEpochEpochEndOffsetFields,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponseFields,
        OffsetForLeaderPartition,
        OffsetForLeaderTopicResultFields,
    )


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def partitions(self) -> PartitionSet: ...


def handle(
    node: Needs, ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponseFields:
    topics: list[OffsetForLeaderTopicResultFields] = []
    for topic in request.topics:
        partitions = [_answer(node, topic.topic, requested) for requested in topic.partitions]
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"topics": topics}


def _answer(node: Needs, topic: str, requested: OffsetForLeaderPartition) -> OffsetForLeaderEpochEpochEndOffsetFields:
    fields: OffsetForLeaderEpochEpochEndOffsetFields = {
        "partition": requested.partition,
        "error_code": 0,
        "leader_epoch": -1,
        "end_offset": -1,
    }
    current = messages.get(requested, "current_leader_epoch", -1)
    try:
        epoch, end = node.partitions.get(topic, requested.partition).end_of_epoch(
            LeaderEpoch(requested.leader_epoch), current_leader_epoch=None if current == -1 else current
        )
    except KafkaError as error:
        return fields | {"error_code": int(error.code)}
    if epoch is not None and end is not None:
        fields |= {"leader_epoch": epoch, "end_offset": end}
    return fields
