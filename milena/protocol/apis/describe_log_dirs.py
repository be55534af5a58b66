"""DescribeLogDirs (35), versions 1-5. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class DescribeLogDirsRequest(Protocol):
    @property
    def topics(self) -> tuple[DescribableLogDirTopic, ...] | None: ...


class DescribeLogDirsRequestFields(TypedDict, total=False):
    topics: Sequence[DescribableLogDirTopicFields] | None


class DescribableLogDirTopic(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partitions(self) -> tuple[int, ...]: ...


class DescribableLogDirTopicFields(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]


class DescribeLogDirsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...  # 3-5
    @property
    def results(self) -> tuple[DescribeLogDirsResult, ...]: ...


class DescribeLogDirsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int  # 3-5
    results: Sequence[DescribeLogDirsResultFields]


class DescribeLogDirsResult(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def log_dir(self) -> str: ...
    @property
    def topics(self) -> tuple[DescribeLogDirsTopic, ...]: ...
    @property
    def total_bytes(self) -> int: ...  # 4-5
    @property
    def usable_bytes(self) -> int: ...  # 4-5
    @property
    def is_cordoned(self) -> bool: ...  # 5


class DescribeLogDirsResultFields(TypedDict, total=False):
    error_code: int
    log_dir: str
    topics: Sequence[DescribeLogDirsTopicFields]
    total_bytes: int  # 4-5
    usable_bytes: int  # 4-5
    is_cordoned: bool  # 5


class DescribeLogDirsTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[DescribeLogDirsPartition, ...]: ...


class DescribeLogDirsTopicFields(TypedDict, total=False):
    name: str
    partitions: Sequence[DescribeLogDirsPartitionFields]


class DescribeLogDirsPartition(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def partition_size(self) -> int: ...
    @property
    def offset_lag(self) -> int: ...
    @property
    def is_future_key(self) -> bool: ...


class DescribeLogDirsPartitionFields(TypedDict, total=False):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool
