"""AssignReplicasToDirs (73), version 0. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID

from milena.protocol.types import NodeId


class AssignReplicasToDirsRequest(Protocol):
    @property
    def broker_id(self) -> NodeId: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def directories(self) -> tuple[RequestDirectoryData, ...]: ...


class AssignReplicasToDirsRequestFields(TypedDict, total=False):
    broker_id: int
    broker_epoch: int
    directories: Sequence[RequestDirectoryDataFields]


class RequestDirectoryData(Protocol):
    @property
    def id_(self) -> UUID | None: ...
    @property
    def topics(self) -> tuple[RequestTopicData, ...]: ...


class RequestDirectoryDataFields(TypedDict, total=False):
    id: UUID | None
    topics: Sequence[RequestTopicDataFields]


class RequestTopicData(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def partitions(self) -> tuple[RequestPartitionData, ...]: ...


class RequestTopicDataFields(TypedDict, total=False):
    topic_id: UUID | None
    partitions: Sequence[RequestPartitionDataFields]


class RequestPartitionData(Protocol):
    @property
    def partition_index(self) -> int: ...


class RequestPartitionDataFields(TypedDict, total=False):
    partition_index: int


class AssignReplicasToDirsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def directories(self) -> tuple[ResponseDirectoryData, ...]: ...


class AssignReplicasToDirsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    directories: Sequence[ResponseDirectoryDataFields]


class ResponseDirectoryData(Protocol):
    @property
    def id_(self) -> UUID | None: ...
    @property
    def topics(self) -> tuple[ResponseTopicData, ...]: ...


class ResponseDirectoryDataFields(TypedDict, total=False):
    id: UUID | None
    topics: Sequence[ResponseTopicDataFields]


class ResponseTopicData(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def partitions(self) -> tuple[ResponsePartitionData, ...]: ...


class ResponseTopicDataFields(TypedDict, total=False):
    topic_id: UUID | None
    partitions: Sequence[ResponsePartitionDataFields]


class ResponsePartitionData(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> int: ...


class ResponsePartitionDataFields(TypedDict, total=False):
    partition_index: int
    error_code: int
