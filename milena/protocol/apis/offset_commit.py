"""OffsetCommit (8), versions 2-10. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID


class OffsetCommitRequest(Protocol):
    @property
    def group_id(self) -> str: ...
    @property
    def generation_id_or_member_epoch(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...  # 7-10
    @property
    def topics(self) -> tuple[OffsetCommitRequestTopic, ...]: ...
    @property
    def retention_time(self) -> int: ...  # 2-4


class OffsetCommitRequestFields(TypedDict, total=False):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None  # 7-10
    topics: Sequence[OffsetCommitRequestTopicFields]
    retention_time_ms: int  # 2-4


class OffsetCommitRequestTopic(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...  # 10
    @property
    def partitions(self) -> tuple[OffsetCommitRequestPartition, ...]: ...
    @property
    def name(self) -> str: ...  # 2-9


class OffsetCommitRequestTopicFields(TypedDict, total=False):
    topic_id: UUID | None  # 10
    partitions: Sequence[OffsetCommitRequestPartitionFields]
    name: str  # 2-9


class OffsetCommitRequestPartition(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def committed_offset(self) -> int: ...
    @property
    def committed_leader_epoch(self) -> int: ...  # 6-10
    @property
    def committed_metadata(self) -> str | None: ...


class OffsetCommitRequestPartitionFields(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int  # 6-10
    committed_metadata: str | None


class OffsetCommitResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...  # 3-10
    @property
    def topics(self) -> tuple[OffsetCommitResponseTopic, ...]: ...


class OffsetCommitResponseFields(TypedDict, total=False):
    throttle_time_ms: int  # 3-10
    topics: Sequence[OffsetCommitResponseTopicFields]


class OffsetCommitResponseTopic(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...  # 10
    @property
    def partitions(self) -> tuple[OffsetCommitResponsePartition, ...]: ...
    @property
    def name(self) -> str: ...  # 2-9


class OffsetCommitResponseTopicFields(TypedDict, total=False):
    topic_id: UUID | None  # 10
    partitions: Sequence[OffsetCommitResponsePartitionFields]
    name: str  # 2-9


class OffsetCommitResponsePartition(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> int: ...


class OffsetCommitResponsePartitionFields(TypedDict, total=False):
    partition_index: int
    error_code: int
