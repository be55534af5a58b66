"""Records of ``__remote_log_metadata``: the states of remote segments (KIP-405; docs/kafka-semantics.md: Remote segment
records).

A value consists of uvarint frame version (1), uvarint type, uvarint version, and flexible fields. The keys are null.
Tagged fields from 10000 on are Milena's; Kafka's readers skip them.
"""

from dataclasses import field
from typing import ClassVar, Final
from uuid import UUID

from milena.protocol.schemas.primitives import Data, Reader, Writer
from milena.protocol.schemas.schema import (
    BOOL,
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID_TYPE,
    Entity,
    decode_from,
    encode_into,
    versioned,
)
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import Offset

FRAME_VERSION: Final = 1


class RemoteLogRecord(Entity):
    """A record of a known type."""

    __slots__ = ()

    TYPE: ClassVar[int]


@versioned
class TopicIdPartitionEntry(Entity):
    """A partition of a topic, with the topic's id."""

    name: str = field(metadata=STRING)
    id: UUID = field(metadata=UUID_TYPE)
    partition: int = field(metadata=INT32)


@versioned
class RemoteLogSegmentIdEntry(Entity):
    """The id of one copy of a segment."""

    topic_id_partition: TopicIdPartitionEntry = field()
    id: UUID = field(metadata=UUID_TYPE)


@versioned
class SegmentLeaderEpochEntry(Entity):
    """A leader epoch and its first offset in the segment."""

    leader_epoch: int = field(metadata=INT32)
    offset: int = field(metadata=INT64)


@versioned
class CleanerOffsetEntry(Entity):
    """The offset below which the leader of an epoch has cleaned; -1 if it has begun and not cleaned any segment."""

    leader_epoch: int = field(metadata=INT32)
    offset: int = field(metadata=INT64)


@versioned
class RemoteLogSegmentMetadataRecord(RemoteLogRecord):
    """A segment whose copy begins. Offsets are inclusive, times in ms, the size in bytes."""

    TYPE: ClassVar[int] = 0

    remote_log_segment_id: RemoteLogSegmentIdEntry = field()
    start_offset: int = field(metadata=INT64)
    end_offset: int = field(metadata=INT64)
    broker_id: int = field(metadata=INT32)
    max_timestamp_ms: int = field(metadata=INT64)
    event_timestamp_ms: int = field(metadata=INT64)
    segment_leader_epochs: tuple[SegmentLeaderEpochEntry, ...] = field()
    segment_size_in_bytes: int = field(metadata=INT32)
    custom_metadata: bytes | None = field(metadata=BYTES, default=None)
    remote_log_segment_state: int = field(metadata=INT8)
    txn_index_empty: bool = field(metadata={**BOOL, "tag": 0}, default=False)
    leader_epoch: int = field(metadata={**INT32, "tag": 10000}, default=-1)
    cleaner_offsets: tuple[CleanerOffsetEntry, ...] = field(metadata={"tag": 10001}, default=())
    replaces: tuple[UUID, ...] = field(metadata={**UUID_TYPE, "tag": 10002}, default=())


@versioned
class RemoteLogSegmentMetadataUpdateRecord(RemoteLogRecord):
    """A change of a segment's state. Time in ms."""

    TYPE: ClassVar[int] = 1

    remote_log_segment_id: RemoteLogSegmentIdEntry = field()
    broker_id: int = field(metadata=INT32)
    event_timestamp_ms: int = field(metadata=INT64)
    custom_metadata: bytes | None = field(metadata=BYTES, default=None)
    remote_log_segment_state: int = field(metadata=INT8)
    leader_epoch: int = field(metadata={**INT32, "tag": 10000}, default=-1)
    republishes: bool = field(metadata={**BOOL, "tag": 10003}, default=False)
    first_dirty_offset: int = field(metadata={**INT64, "tag": 10004}, default=-1)


@versioned
class RemotePartitionDeleteMetadataRecord(RemoteLogRecord):
    """The state of a partition's deletion: 0 marked, 1 started, 2 finished. Neither Kafka's brokers nor Milena's write
    it. Time in ms."""

    TYPE: ClassVar[int] = 2

    topic_id_partition: TopicIdPartitionEntry = field()
    broker_id: int = field(metadata=INT32)
    event_timestamp_ms: int = field(metadata=INT64)
    remote_partition_delete_state: int = field(metadata=INT8)


@versioned
class RemoteLogSegmentMetadataSnapshotRecord(RemoteLogRecord):
    """A segment in a snapshot of one partition. Neither Kafka's brokers nor Milena's write it."""

    TYPE: ClassVar[int] = 3

    segment_id: UUID = field(metadata=UUID_TYPE)
    start_offset: int = field(metadata=INT64)
    end_offset: int = field(metadata=INT64)
    broker_id: int = field(metadata=INT32)
    max_timestamp_ms: int = field(metadata=INT64)
    event_timestamp_ms: int = field(metadata=INT64)
    segment_leader_epochs: tuple[SegmentLeaderEpochEntry, ...] = field()
    segment_size_in_bytes: int = field(metadata=INT32)
    custom_metadata: bytes | None = field(metadata=BYTES, default=None)
    remote_log_segment_state: int = field(metadata=INT8)
    txn_index_empty: bool = field(metadata={**BOOL, "tag": 0}, default=False)


_TYPES: Final[dict[int, type[RemoteLogRecord]]] = {
    record.TYPE: record
    for record in (
        RemoteLogSegmentMetadataRecord,
        RemoteLogSegmentMetadataUpdateRecord,
        RemotePartitionDeleteMetadataRecord,
        RemoteLogSegmentMetadataSnapshotRecord,
    )
}


class UnreadableRemoteLogRecord(DecodeError):
    """The record at ``offset`` cannot be decoded."""

    def __init__(self, offset: Offset, reason: str) -> None:
        super().__init__(f"the record at offset {offset} of the remote log metadata: {reason}")
        self.offset = offset


class UnknownRemoteLogRecord(UnreadableRemoteLogRecord):
    """The record has an unknown frame version, type or version: a newer broker has written it."""


def encode_remote_log_record(record: RemoteLogRecord) -> bytes:
    """Encode a record's value in its newest version, the only one so far."""
    out = Writer()
    out.uvarint(FRAME_VERSION)
    out.uvarint(record.TYPE)
    out.uvarint(record.__version__)
    encode_into(out, record, record.__version__)
    return bytes(out)


def decode_remote_log_record(value: Data | None, offset: Offset) -> RemoteLogRecord:
    """Decode a record's value. Raises UnknownRemoteLogRecord, and UnreadableRemoteLogRecord if it is damaged."""
    if value is None:
        raise UnreadableRemoteLogRecord(offset, "no value")
    reader = Reader(value)
    try:
        frame = reader.uvarint()
        if frame != FRAME_VERSION:
            raise UnknownRemoteLogRecord(offset, f"frame version {frame} is not {FRAME_VERSION}")
        number, version = reader.uvarint(), reader.uvarint()
        schema = _TYPES.get(number)
        if schema is None:
            raise UnknownRemoteLogRecord(offset, f"type {number} is not known")
        if version > schema.__version__:
            raise UnknownRemoteLogRecord(offset, f"{schema.__name__} of version {version} is not known")
        record = decode_from(reader, schema, version)
        reader.expect_end()
    except UnreadableRemoteLogRecord:
        raise
    except DecodeError as error:
        raise UnreadableRemoteLogRecord(offset, str(error)) from None
    return record
