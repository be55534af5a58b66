"""AlterReplicaLogDirs (34), versions 1-2. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class AlterReplicaLogDirsRequest(Protocol):
    @property
    def dirs(self) -> tuple[AlterReplicaLogDir, ...]: ...


class AlterReplicaLogDirsRequestFields(TypedDict, total=False):
    dirs: Sequence[AlterReplicaLogDirFields]


class AlterReplicaLogDir(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def topics(self) -> tuple[AlterReplicaLogDirTopic, ...]: ...


class AlterReplicaLogDirFields(TypedDict, total=False):
    path: str
    topics: Sequence[AlterReplicaLogDirTopicFields]


class AlterReplicaLogDirTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[int, ...]: ...


class AlterReplicaLogDirTopicFields(TypedDict, total=False):
    name: str
    partitions: Sequence[int]


class AlterReplicaLogDirsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def results(self) -> tuple[AlterReplicaLogDirTopicResult, ...]: ...


class AlterReplicaLogDirsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[AlterReplicaLogDirTopicResultFields]


class AlterReplicaLogDirTopicResult(Protocol):
    @property
    def topic_name(self) -> str: ...
    @property
    def partitions(self) -> tuple[AlterReplicaLogDirPartitionResult, ...]: ...


class AlterReplicaLogDirTopicResultFields(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[AlterReplicaLogDirPartitionResultFields]


class AlterReplicaLogDirPartitionResult(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> int: ...


class AlterReplicaLogDirPartitionResultFields(TypedDict, total=False):
    partition_index: int
    error_code: int
