"""ListPartitionReassignments (46), version 0. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from milena.protocol.types import NodeId


class ListPartitionReassignmentsRequest(Protocol):
    @property
    def timeout(self) -> int: ...
    @property
    def topics(self) -> tuple[ListPartitionReassignmentsTopics, ...] | None: ...


class ListPartitionReassignmentsRequestFields(TypedDict, total=False):
    timeout_ms: int
    topics: Sequence[ListPartitionReassignmentsTopicsFields] | None


class ListPartitionReassignmentsTopics(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partition_indexes(self) -> tuple[int, ...]: ...


class ListPartitionReassignmentsTopicsFields(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]


class ListPartitionReassignmentsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def topics(self) -> tuple[OngoingTopicReassignment, ...]: ...


class ListPartitionReassignmentsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: Sequence[OngoingTopicReassignmentFields]


class OngoingTopicReassignment(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[OngoingPartitionReassignment, ...]: ...


class OngoingTopicReassignmentFields(TypedDict, total=False):
    name: str
    partitions: Sequence[OngoingPartitionReassignmentFields]


class OngoingPartitionReassignment(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def replicas(self) -> tuple[NodeId, ...]: ...
    @property
    def adding_replicas(self) -> tuple[NodeId, ...]: ...
    @property
    def removing_replicas(self) -> tuple[NodeId, ...]: ...


class OngoingPartitionReassignmentFields(TypedDict, total=False):
    partition_index: int
    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]
