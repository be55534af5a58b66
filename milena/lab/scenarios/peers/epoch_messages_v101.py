"""OffsetForLeaderEpoch, private version 101: version 4 without the leader epoch in the response."""

from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest as OffsetForLeaderEpochRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffset:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 23
    error_code: int = field(metadata={"kafka_type": "error_code"})
    partition: int = field(metadata={"kafka_type": "int32"})
    end_offset: int = field(metadata={"kafka_type": "int64"}, default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopicResult:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 23
    topic: str = field(metadata={"kafka_type": "string"})
    partitions: tuple[EpochEndOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 23
    throttle_time: int = field(metadata={"kafka_type": "timedelta_i32"})
    topics: tuple[OffsetForLeaderTopicResult, ...]
