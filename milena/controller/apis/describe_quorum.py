"""DescribeQuorum (key 55), versions 0-2: the leader, voters and observers of the metadata log with their offsets.

v1 times of fetches (KIP-836), v2 directories and the voters' listeners (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode, default_message
from milena.protocol.types import METADATA_TOPIC, ZERO_UUID

if TYPE_CHECKING:
    from milena.controller.log.followers import Followers
    from milena.controller.log.metadata_log import MetadataLog
    from milena.protocol.apis import (
        DescribeQuorumListenerFields,
        DescribeQuorumReplicaStateFields,
        DescribeQuorumRequest,
        DescribeQuorumResponseFields,
        DescribeQuorumResponsePartitionDataFields,
        DescribeQuorumResponseTopicDataFields,
    )
    from milena.protocol.types import NodeId
    from milena.runtime.context import Runtime


class Needs(Protocol):
    """What this handler uses of its controller."""

    @property
    def followers(self) -> Followers: ...
    @property
    def metadata(self) -> MetadataLog: ...
    @property
    def node_id(self) -> NodeId: ...
    @property
    def runtime(self) -> Runtime: ...
    def advertised(self) -> dict[str, tuple[str, int]]: ...


def handle(node: Needs, ctx: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponseFields:
    asked = [(topic.topic_name, [p.partition_index for p in topic.partitions]) for topic in request.topics]
    if asked != [(METADATA_TOPIC, [0])]:
        return {"error_code": 0, "error_message": None, "topics": [_unknown(*topic) for topic in asked], "nodes": []}
    now = node.runtime.clock.time_ms()
    end = node.metadata.high_watermark
    partition: DescribeQuorumResponsePartitionDataFields = {
        "partition_index": 0,
        "error_code": 0,
        "error_message": None,
        "leader_id": node.node_id,
        "leader_epoch": node.metadata.epoch,
        "high_watermark": end,
        "current_voters": [_replica(node.node_id, ZERO_UUID, end, now, now)],
        "observers": [
            _replica(follower.id, follower.directory, follower.end_offset, follower.fetched_ms, follower.caught_up_ms)
            for follower in node.followers.present(now)
        ],
    }
    listeners: list[DescribeQuorumListenerFields] = [
        {"name": name, "host": host, "port": port} for name, (host, port) in node.advertised().items()
    ]
    return {
        "error_code": 0,
        "error_message": None,
        "topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}],
        "nodes": [{"node_id": node.node_id, "listeners": listeners}],
    }


def _replica(
    id: int, directory: UUID, end_offset: int, fetched_ms: int, caught_up_ms: int
) -> DescribeQuorumReplicaStateFields:
    return {
        "replica_id": id,
        "replica_directory_id": directory,
        "log_end_offset": end_offset,
        "last_fetch_timestamp": fetched_ms,
        "last_caught_up_timestamp": caught_up_ms,
    }


def _unknown(topic: str, partitions: list[int]) -> DescribeQuorumResponseTopicDataFields:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "topic_name": topic,
        "partitions": [
            {"partition_index": partition, "error_code": int(error), "error_message": default_message(error)}
            for partition in partitions
        ],
    }
