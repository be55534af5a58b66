"""What the coordinator keeps in ``__consumer_offsets``: Kafka's own records, written and read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from broker.groups.model import CommittedOffset
from protocol import coordinator_records as records
from protocol.errors import ErrorCode
from protocol.records import Record, build_batch

KeyValue: TypeAlias = tuple[bytes, bytes | None]
TopicPartition = tuple[str, int]

_CLIENT_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def client_error(error: ErrorCode) -> ErrorCode:
    """What a failed append is to the coordinator's client, in terms that make it look for the coordinator again."""
    return _CLIENT_ERRORS.get(error, error)


def batch(pairs: Iterable[KeyValue], now_ms: int) -> bytes:
    """One uncompressed batch of these records."""
    return build_batch(
        [Record(index, 0, key, value) for index, (key, value) in enumerate(pairs)],
        base_timestamp=now_ms,
    )


def offset_records(group_id: str, offsets: Mapping[TopicPartition, CommittedOffset | None]) -> list[KeyValue]:
    """Records of offsets; None is a tombstone."""
    return [
        (
            records.encode_key(records.OffsetCommitKey(group=group_id, topic=topic, partition=partition)),
            None if committed is None else records.encode_value(_offset_value(committed)),
        )
        for (topic, partition), committed in offsets.items()
    ]
