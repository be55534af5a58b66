"""DescribeProducers (key 61), version 0: the active producers of partitions hosted here. KIP-664."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.metadata_view import is_valid_topic_name
from node.api import RequestContext
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.server import Broker


def handle(node: Broker, ctx: RequestContext, request: Any) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_partition(node, topic.name, index) for index in topic.partition_indexes],
            }
            for topic in request.topics
        ]
    }


def _partition(node: Broker, topic: str, index: int) -> dict[str, Any]:
    error, producers = ErrorCode.NONE, list[dict[str, int]]()
    try:
        if not is_valid_topic_name(topic):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        producers = [
            {
                "producer_id": one.producer_id,
                "producer_epoch": one.epoch,
                "last_sequence": one.last_sequence,
                "last_timestamp": one.last_timestamp,
                "coordinator_epoch": one.coordinator_epoch,
                "current_txn_start_offset": -1 if one.transaction_start is None else one.transaction_start,
            }
            for one in node.partitions.get(topic, index).online_log.producers.active()
        ]
    except KafkaError as failure:
        error = failure.code
    return {
        "partition_index": index,
        "error_code": int(error),
        "error_message": None,
        "active_producers": producers,
    }
