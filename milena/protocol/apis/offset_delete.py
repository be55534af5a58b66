"""OffsetDelete (47), version 0. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class OffsetDeleteRequest(Protocol):
    @property
    def group_id(self) -> str: ...
    @property
    def topics(self) -> tuple[OffsetDeleteRequestTopic, ...]: ...


class OffsetDeleteRequestFields(TypedDict, total=False):
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopicFields]


class OffsetDeleteRequestTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[OffsetDeleteRequestPartition, ...]: ...


class OffsetDeleteRequestTopicFields(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetDeleteRequestPartitionFields]


class OffsetDeleteRequestPartition(Protocol):
    @property
    def partition_index(self) -> int: ...


class OffsetDeleteRequestPartitionFields(TypedDict, total=False):
    partition_index: int


class OffsetDeleteResponse(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def throttle_time(self) -> int: ...
    @property
    def topics(self) -> tuple[OffsetDeleteResponseTopic, ...]: ...


class OffsetDeleteResponseFields(TypedDict, total=False):
    error_code: int
    throttle_time_ms: int
    topics: Sequence[OffsetDeleteResponseTopicFields]


class OffsetDeleteResponseTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[OffsetDeleteResponsePartition, ...]: ...


class OffsetDeleteResponseTopicFields(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetDeleteResponsePartitionFields]


class OffsetDeleteResponsePartition(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> int: ...


class OffsetDeleteResponsePartitionFields(TypedDict, total=False):
    partition_index: int
    error_code: int
