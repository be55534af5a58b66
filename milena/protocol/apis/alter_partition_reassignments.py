"""AlterPartitionReassignments (45), versions 0-1. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from milena.protocol.types import NodeId


class AlterPartitionReassignmentsRequest(Protocol):
    @property
    def timeout(self) -> int: ...
    @property
    def allow_replication_factor_change(self) -> bool: ...  # 1
    @property
    def topics(self) -> tuple[ReassignableTopic, ...]: ...


class AlterPartitionReassignmentsRequestFields(TypedDict, total=False):
    timeout_ms: int
    allow_replication_factor_change: bool  # 1
    topics: Sequence[ReassignableTopicFields]


class ReassignableTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[ReassignablePartition, ...]: ...


class ReassignableTopicFields(TypedDict, total=False):
    name: str
    partitions: Sequence[ReassignablePartitionFields]


class ReassignablePartition(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def replicas(self) -> tuple[NodeId, ...] | None: ...


class ReassignablePartitionFields(TypedDict, total=False):
    partition_index: int
    replicas: Sequence[int] | None


class AlterPartitionReassignmentsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def allow_replication_factor_change(self) -> bool: ...  # 1
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def responses(self) -> tuple[ReassignableTopicResponse, ...]: ...


class AlterPartitionReassignmentsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    allow_replication_factor_change: bool  # 1
    error_code: int
    error_message: str | None
    responses: Sequence[ReassignableTopicResponseFields]


class ReassignableTopicResponse(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[ReassignablePartitionResponse, ...]: ...


class ReassignableTopicResponseFields(TypedDict, total=False):
    name: str
    partitions: Sequence[ReassignablePartitionResponseFields]


class ReassignablePartitionResponse(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...


class ReassignablePartitionResponseFields(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
