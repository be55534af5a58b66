"""ListOffsets (key 2), versions 1-11.

Looks up offsets by timestamp, and Kafka's special timestamps as far as a local log has them: nothing is tiered, so
EARLIEST_LOCAL is EARLIEST and the offsets of the tier are -1. Leaders answer; a debugging replica (-2) may ask any.
KIPs: 79, 207 (OFFSET_NOT_AVAILABLE), 320 (leader epochs), 734 (MAX_TIMESTAMP), 405, 1005, 1023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.partition import Partition
from node.api import RequestContext
from protocol import messages
from protocol.errors import ErrorCode, KafkaError
from protocol.types import Offset

if TYPE_CHECKING:
    from broker.server import Broker

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_CONSUMER: Final = -1
_DEBUGGING: Final = -2
_OFFSET_NOT_AVAILABLE_SINCE: Final = 5
_NOTHING: Final = (-1, -1, -1)


def handle(node: Broker, ctx: RequestContext, request: Any) -> dict[str, Any]:
    committed = messages.get(request, "isolation_level", 0) == 1
    asked = [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
    repeated = set() if len(set(asked)) == len(asked) else {one for one in asked if asked.count(one) > 1}
    topics: dict[str, dict[int, Any]] = {}
    for topic in request.topics:
        for one in topic.partitions:
            topics.setdefault(topic.name, {})[one.partition_index] = one

    def answer(name: str, one: Any) -> dict[str, Any]:
        error, found = ErrorCode.NONE, _NOTHING
        try:
            if (name, one.partition_index) in repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            if one.timestamp < 0 and ctx.version < _SINCE.get(one.timestamp, ctx.version + 1):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            partition = node.partitions.get(name, one.partition_index)
            epoch = messages.get(one, "current_leader_epoch", -1)
            found = look_up(
                partition,
                one.timestamp,
                replica=request.replica_id,
                committed=committed,
                current_leader_epoch=None if epoch == -1 else epoch,
            )
        except KafkaError as failure:
            error = failure.code
            if error is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.version < _OFFSET_NOT_AVAILABLE_SINCE:
                error = ErrorCode.LEADER_NOT_AVAILABLE
        timestamp, offset, leader_epoch = found
        return {
            "partition_index": one.partition_index,
            "error_code": int(error),
            "timestamp": timestamp,
            "offset": offset,
            "leader_epoch": leader_epoch,
        }

    return {
        "topics": [
            {"name": name, "partitions": [answer(name, one) for one in partitions.values()]}
            for name, partitions in topics.items()
        ]
    }


def look_up(
    partition: Partition, timestamp: int, *, replica: int, committed: bool, current_leader_epoch: int | None
) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch), each -1 where there is none. Raises KafkaError."""
    log = partition.require(current_leader_epoch, leader=replica != _DEBUGGING)
    is_client = replica == _CONSUMER
    last_fetchable = log.log_end_offset
    if is_client:
        last_fetchable = log.last_stable_offset if committed else log.high_watermark
    # A new leader whose high watermark is behind its epoch does not know yet what is committed.
    lagging = is_client and partition.is_leader and partition.leader_epoch_start_offset > log.high_watermark
    match timestamp:
        case -1:
            if lagging:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return -1, last_fetchable, partition.leader_epoch
        case -2 | -4:
            start = log.log_start_offset if timestamp == EARLIEST else log.local_log_start_offset
            epoch = log.epochs.epoch_for_offset(Offset(start))
            return -1, start, -1 if epoch is None else epoch
        case -5 | -6:
            return _NOTHING
        case -3:
            found = log.max_timestamp_offset()
        case _:
            found = log.offset_for_timestamp(timestamp)
    if found is None:
        return _NOTHING
    if found.offset >= last_fetchable:
        if lagging:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return _NOTHING
    return found.timestamp, found.offset, -1 if found.leader_epoch is None else found.leader_epoch
