"""DeleteRecords (21), versions 0-2. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class DeleteRecordsRequest(Protocol):
    @property
    def topics(self) -> tuple[DeleteRecordsTopic, ...]: ...
    @property
    def timeout(self) -> int: ...


class DeleteRecordsRequestFields(TypedDict, total=False):
    topics: Sequence[DeleteRecordsTopicFields]
    timeout_ms: int


class DeleteRecordsTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[DeleteRecordsPartition, ...]: ...


class DeleteRecordsTopicFields(TypedDict, total=False):
    name: str
    partitions: Sequence[DeleteRecordsPartitionFields]


class DeleteRecordsPartition(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def offset(self) -> int: ...


class DeleteRecordsPartitionFields(TypedDict, total=False):
    partition_index: int
    offset: int


class DeleteRecordsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def topics(self) -> tuple[DeleteRecordsTopicResult, ...]: ...


class DeleteRecordsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[DeleteRecordsTopicResultFields]


class DeleteRecordsTopicResult(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[DeleteRecordsPartitionResult, ...]: ...


class DeleteRecordsTopicResultFields(TypedDict, total=False):
    name: str
    partitions: Sequence[DeleteRecordsPartitionResultFields]


class DeleteRecordsPartitionResult(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def low_watermark(self) -> int: ...
    @property
    def error_code(self) -> int: ...


class DeleteRecordsPartitionResultFields(TypedDict, total=False):
    partition_index: int
    low_watermark: int
    error_code: int
