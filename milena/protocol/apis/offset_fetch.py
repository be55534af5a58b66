"""OffsetFetch (9), versions 1-10. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID


class OffsetFetchRequest(Protocol):
    @property
    def groups(self) -> tuple[OffsetFetchRequestGroup, ...]: ...  # 8-10
    @property
    def require_stable(self) -> bool: ...  # 7-10
    @property
    def group_id(self) -> str: ...  # 1-7
    @property
    def topics(self) -> tuple[OffsetFetchRequestTopic, ...] | None: ...  # 1-7


class OffsetFetchRequestFields(TypedDict, total=False):
    groups: Sequence[OffsetFetchRequestGroupFields]  # 8-10
    require_stable: bool  # 7-10
    group_id: str  # 1-7
    topics: Sequence[OffsetFetchRequestTopicFields] | None  # 1-7


class OffsetFetchRequestGroup(Protocol):
    @property
    def group_id(self) -> str: ...  # 8-10
    @property
    def member_id(self) -> str | None: ...  # 9-10
    @property
    def member_epoch(self) -> int: ...  # 9-10
    @property
    def topics(self) -> tuple[OffsetFetchRequestTopics, ...] | None: ...  # 8-10


class OffsetFetchRequestGroupFields(TypedDict, total=False):
    group_id: str  # 8-10
    member_id: str | None  # 9-10
    member_epoch: int  # 9-10
    topics: Sequence[OffsetFetchRequestTopicsFields] | None  # 8-10


class OffsetFetchRequestTopics(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...  # 10
    @property
    def partition_indexes(self) -> tuple[int, ...]: ...  # 8-10
    @property
    def name(self) -> str: ...  # 8-9


class OffsetFetchRequestTopicsFields(TypedDict, total=False):
    topic_id: UUID | None  # 10
    partition_indexes: Sequence[int]  # 8-10
    name: str  # 8-9


class OffsetFetchRequestTopic(Protocol):
    @property
    def name(self) -> str: ...  # 1-7
    @property
    def partition_indexes(self) -> tuple[int, ...]: ...  # 1-7


class OffsetFetchRequestTopicFields(TypedDict, total=False):
    name: str  # 1-7
    partition_indexes: Sequence[int]  # 1-7


class OffsetFetchResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...  # 3-10
    @property
    def groups(self) -> tuple[OffsetFetchResponseGroup, ...]: ...  # 8-10
    @property
    def topics(self) -> tuple[OffsetFetchResponseTopic, ...]: ...  # 1-7
    @property
    def error_code(self) -> int: ...  # 2-7


class OffsetFetchResponseFields(TypedDict, total=False):
    throttle_time_ms: int  # 3-10
    groups: Sequence[OffsetFetchResponseGroupFields]  # 8-10
    topics: Sequence[OffsetFetchResponseTopicFields]  # 1-7
    error_code: int  # 2-7


class OffsetFetchResponseGroup(Protocol):
    @property
    def group_id(self) -> str: ...  # 8-10
    @property
    def topics(self) -> tuple[OffsetFetchResponseTopics, ...]: ...  # 8-10
    @property
    def error_code(self) -> int: ...  # 8-10


class OffsetFetchResponseGroupFields(TypedDict, total=False):
    group_id: str  # 8-10
    topics: Sequence[OffsetFetchResponseTopicsFields]  # 8-10
    error_code: int  # 8-10


class OffsetFetchResponseTopics(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...  # 10
    @property
    def partitions(self) -> tuple[OffsetFetchResponsePartitions, ...]: ...  # 8-10
    @property
    def name(self) -> str: ...  # 8-9


class OffsetFetchResponseTopicsFields(TypedDict, total=False):
    topic_id: UUID | None  # 10
    partitions: Sequence[OffsetFetchResponsePartitionsFields]  # 8-10
    name: str  # 8-9


class OffsetFetchResponsePartitions(Protocol):
    @property
    def partition_index(self) -> int: ...  # 8-10
    @property
    def committed_offset(self) -> int: ...  # 8-10
    @property
    def committed_leader_epoch(self) -> int: ...  # 8-10
    @property
    def metadata(self) -> str | None: ...  # 8-10
    @property
    def error_code(self) -> int: ...  # 8-10


class OffsetFetchResponsePartitionsFields(TypedDict, total=False):
    partition_index: int  # 8-10
    committed_offset: int  # 8-10
    committed_leader_epoch: int  # 8-10
    metadata: str | None  # 8-10
    error_code: int  # 8-10


class OffsetFetchResponseTopic(Protocol):
    @property
    def name(self) -> str: ...  # 1-7
    @property
    def partitions(self) -> tuple[OffsetFetchResponsePartition, ...]: ...  # 1-7


class OffsetFetchResponseTopicFields(TypedDict, total=False):
    name: str  # 1-7
    partitions: Sequence[OffsetFetchResponsePartitionFields]  # 1-7


class OffsetFetchResponsePartition(Protocol):
    @property
    def partition_index(self) -> int: ...  # 1-7
    @property
    def committed_offset(self) -> int: ...  # 1-7
    @property
    def committed_leader_epoch(self) -> int: ...  # 5-7
    @property
    def metadata(self) -> str | None: ...  # 1-7
    @property
    def error_code(self) -> int: ...  # 1-7


class OffsetFetchResponsePartitionFields(TypedDict, total=False):
    partition_index: int  # 1-7
    committed_offset: int  # 1-7
    committed_leader_epoch: int  # 5-7
    metadata: str | None  # 1-7
    error_code: int  # 1-7
