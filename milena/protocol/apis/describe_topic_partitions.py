"""DescribeTopicPartitions (75), version 0. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID

from milena.protocol.types import NodeId


class DescribeTopicPartitionsRequest(Protocol):
    @property
    def topics(self) -> tuple[TopicRequest, ...]: ...
    @property
    def response_partition_limit(self) -> int: ...
    @property
    def cursor(self) -> RequestCursor | None: ...


class DescribeTopicPartitionsRequestFields(TypedDict, total=False):
    topics: Sequence[TopicRequestFields]
    response_partition_limit: int
    cursor: RequestCursorFields | None


class TopicRequest(Protocol):
    @property
    def name(self) -> str: ...


class TopicRequestFields(TypedDict, total=False):
    name: str


class RequestCursor(Protocol):
    @property
    def topic_name(self) -> str: ...
    @property
    def partition_index(self) -> int: ...


class RequestCursorFields(TypedDict, total=False):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def topics(self) -> tuple[DescribeTopicPartitionsResponseTopic, ...]: ...
    @property
    def next_cursor(self) -> ResponseCursor | None: ...


class DescribeTopicPartitionsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[DescribeTopicPartitionsResponseTopicFields]
    next_cursor: ResponseCursorFields | None


class DescribeTopicPartitionsResponseTopic(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def name(self) -> str | None: ...
    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def is_internal(self) -> bool: ...
    @property
    def partitions(self) -> tuple[DescribeTopicPartitionsResponsePartition, ...]: ...
    @property
    def topic_authorized_operations(self) -> int: ...


class DescribeTopicPartitionsResponseTopicFields(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: UUID | None
    is_internal: bool
    partitions: Sequence[DescribeTopicPartitionsResponsePartitionFields]
    topic_authorized_operations: int


class DescribeTopicPartitionsResponsePartition(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def partition_index(self) -> int: ...
    @property
    def leader_id(self) -> NodeId: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def replica_nodes(self) -> tuple[NodeId, ...]: ...
    @property
    def isr_nodes(self) -> tuple[NodeId, ...]: ...
    @property
    def eligible_leader_replicas(self) -> tuple[NodeId, ...] | None: ...
    @property
    def last_known_elr(self) -> tuple[NodeId, ...] | None: ...
    @property
    def offline_replicas(self) -> tuple[NodeId, ...]: ...


class DescribeTopicPartitionsResponsePartitionFields(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    eligible_leader_replicas: Sequence[int] | None
    last_known_elr: Sequence[int] | None
    offline_replicas: Sequence[int]


class ResponseCursor(Protocol):
    @property
    def topic_name(self) -> str: ...
    @property
    def partition_index(self) -> int: ...


class ResponseCursorFields(TypedDict, total=False):
    topic_name: str
    partition_index: int
