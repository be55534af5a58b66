"""ElectLeaders (43), versions 0-2. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class ElectLeadersRequest(Protocol):
    @property
    def election_type(self) -> int: ...  # 1-2
    @property
    def topic_partitions(self) -> tuple[TopicPartitions, ...] | None: ...
    @property
    def timeout(self) -> int: ...


class ElectLeadersRequestFields(TypedDict, total=False):
    election_type: int  # 1-2
    topic_partitions: Sequence[TopicPartitionsFields] | None
    timeout_ms: int


class TopicPartitions(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partitions(self) -> tuple[int, ...]: ...


class TopicPartitionsFields(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]


class ElectLeadersResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...  # 1-2
    @property
    def replica_election_results(self) -> tuple[ReplicaElectionResult, ...]: ...


class ElectLeadersResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int  # 1-2
    replica_election_results: Sequence[ReplicaElectionResultFields]


class ReplicaElectionResult(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partition_result(self) -> tuple[PartitionResult, ...]: ...


class ReplicaElectionResultFields(TypedDict, total=False):
    topic: str
    partition_result: Sequence[PartitionResultFields]


class PartitionResult(Protocol):
    @property
    def partition_id(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...


class PartitionResultFields(TypedDict, total=False):
    partition_id: int
    error_code: int
    error_message: str | None
