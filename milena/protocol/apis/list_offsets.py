"""ListOffsets (2), versions 1-11. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from milena.protocol.types import NodeId


class ListOffsetsRequest(Protocol):
    @property
    def replica_id(self) -> NodeId: ...
    @property
    def isolation_level(self) -> int: ...  # 2-11
    @property
    def topics(self) -> tuple[ListOffsetsTopic, ...]: ...
    @property
    def timeout(self) -> int: ...  # 10-11


class ListOffsetsRequestFields(TypedDict, total=False):
    replica_id: int
    isolation_level: int  # 2-11
    topics: Sequence[ListOffsetsTopicFields]
    timeout_ms: int  # 10-11


class ListOffsetsTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[ListOffsetsPartition, ...]: ...


class ListOffsetsTopicFields(TypedDict, total=False):
    name: str
    partitions: Sequence[ListOffsetsPartitionFields]


class ListOffsetsPartition(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def current_leader_epoch(self) -> int: ...  # 4-11
    @property
    def timestamp(self) -> int: ...


class ListOffsetsPartitionFields(TypedDict, total=False):
    partition_index: int
    current_leader_epoch: int  # 4-11
    timestamp: int


class ListOffsetsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...  # 2-11
    @property
    def topics(self) -> tuple[ListOffsetsTopicResponse, ...]: ...


class ListOffsetsResponseFields(TypedDict, total=False):
    throttle_time_ms: int  # 2-11
    topics: Sequence[ListOffsetsTopicResponseFields]


class ListOffsetsTopicResponse(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[ListOffsetsPartitionResponse, ...]: ...


class ListOffsetsTopicResponseFields(TypedDict, total=False):
    name: str
    partitions: Sequence[ListOffsetsPartitionResponseFields]


class ListOffsetsPartitionResponse(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...  # 4-11


class ListOffsetsPartitionResponseFields(TypedDict, total=False):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int  # 4-11
