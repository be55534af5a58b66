"""TxnOffsetCommit (28), version 6: topics have ids instead of names (KIP-1319). ``generation_id``, named as in the
earlier versions, is also the epoch of a member of the consumer protocol."""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kio.schema.types import ProducerId


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestPartition:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 28
    partition_index: int = field(metadata={"kafka_type": "int32"})
    committed_offset: int = field(metadata={"kafka_type": "int64"})
    committed_leader_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)
    committed_metadata: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestTopic:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 28
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequest:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 28
    transactional_id: str = field(metadata={"kafka_type": "string"})
    group_id: str = field(metadata={"kafka_type": "string"})
    producer_id: ProducerId = field(metadata={"kafka_type": "int64"})
    producer_epoch: int = field(metadata={"kafka_type": "int16"})
    generation_id: int = field(metadata={"kafka_type": "int32"}, default=-1)
    member_id: str = field(metadata={"kafka_type": "string"}, default="")
    group_instance_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponsePartition:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 28
    partition_index: int = field(metadata={"kafka_type": "int32"})
    error_code: int = field(metadata={"kafka_type": "error_code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponseTopic:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 28
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponse:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 28
    throttle_time: int = field(metadata={"kafka_type": "timedelta_i32"})
    topics: tuple[TxnOffsetCommitResponseTopic, ...]
