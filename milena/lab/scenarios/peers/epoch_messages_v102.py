"""OffsetForLeaderEpoch, private version 102: as version 101, with a sequence of leader epochs in the request."""

from dataclasses import dataclass, field
from typing import ClassVar

from milena.lab.scenarios.peers.epoch_messages_v101 import (
    OffsetForLeaderEpochResponse as OffsetForLeaderEpochResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOfFollower:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 23
    leader_epoch: int = field(metadata={"kafka_type": "int32"})
    end_offset: int = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderPartition:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 23
    partition: int = field(metadata={"kafka_type": "int32"})
    current_leader_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)
    leader_epochs: tuple[EpochOfFollower, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopic:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 23
    topic: str = field(metadata={"kafka_type": "string"})
    partitions: tuple[OffsetForLeaderPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochRequest:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 23
    replica_id: int = field(metadata={"kafka_type": "int32"}, default=-2)
    topics: tuple[OffsetForLeaderTopic, ...]
