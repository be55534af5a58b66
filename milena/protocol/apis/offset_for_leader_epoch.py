"""OffsetForLeaderEpoch (23), versions 2-4. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from milena.protocol.types import NodeId


class OffsetForLeaderEpochRequest(Protocol):
    @property
    def replica_id(self) -> NodeId: ...  # 3-4
    @property
    def topics(self) -> tuple[OffsetForLeaderTopic, ...]: ...


class OffsetForLeaderEpochRequestFields(TypedDict, total=False):
    replica_id: int  # 3-4
    topics: Sequence[OffsetForLeaderTopicFields]


class OffsetForLeaderTopic(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partitions(self) -> tuple[OffsetForLeaderPartition, ...]: ...


class OffsetForLeaderTopicFields(TypedDict, total=False):
    topic: str
    partitions: Sequence[OffsetForLeaderPartitionFields]


class OffsetForLeaderPartition(Protocol):
    @property
    def partition(self) -> int: ...
    @property
    def current_leader_epoch(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...


class OffsetForLeaderPartitionFields(TypedDict, total=False):
    partition: int
    current_leader_epoch: int
    leader_epoch: int


class OffsetForLeaderEpochResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def topics(self) -> tuple[OffsetForLeaderTopicResult, ...]: ...


class OffsetForLeaderEpochResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[OffsetForLeaderTopicResultFields]


class OffsetForLeaderTopicResult(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partitions(self) -> tuple[EpochEndOffset, ...]: ...


class OffsetForLeaderTopicResultFields(TypedDict, total=False):
    topic: str
    partitions: Sequence[EpochEndOffsetFields]


class EpochEndOffset(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class EpochEndOffsetFields(TypedDict, total=False):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int
