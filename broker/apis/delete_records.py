"""DeleteRecords (key 21), versions 0-2.

Raises the log start of partitions led here; -1 stands for the high watermark. Kafka waits until the followers have
raised theirs too; as long as nothing follows, the leader's answer is the whole answer. KIP-107.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.metadata_view import INTERNAL_TOPICS
from node.api import RequestContext
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.server import Broker

HIGH_WATERMARK: Final = -1


def handle(node: Broker, ctx: RequestContext, request: Any) -> dict[str, Any]:
    return {
        "topics": [
            {"name": topic.name, "partitions": [_delete(node, topic.name, one) for one in topic.partitions]}
            for topic in request.topics
            if topic.partitions
        ]
    }


def _delete(node: Broker, topic: str, one: Any) -> dict[str, Any]:
    error, low_watermark = ErrorCode.NONE, -1
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = node.partitions.get(topic, one.partition_index)
        low_watermark = partition.delete_records(None if one.offset == HIGH_WATERMARK else one.offset)
    except KafkaError as failure:
        error = failure.code
    return {"partition_index": one.partition_index, "error_code": int(error), "low_watermark": low_watermark}
