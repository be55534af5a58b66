"""Fetch (1), versions 4-18. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID

from milena.protocol.schemas.primitives import Data
from milena.protocol.types import NodeId, ProducerId


class FetchRequest(Protocol):
    @property
    def cluster_id(self) -> str | None: ...  # 12-18
    @property
    def replica_state(self) -> ReplicaState: ...  # 15-18
    @property
    def max_wait(self) -> int: ...
    @property
    def min_bytes(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def isolation_level(self) -> int: ...
    @property
    def session_id(self) -> int: ...  # 7-18
    @property
    def session_epoch(self) -> int: ...  # 7-18
    @property
    def topics(self) -> tuple[FetchTopic, ...]: ...
    @property
    def forgotten_topics_data(self) -> tuple[ForgottenTopic, ...]: ...  # 7-18
    @property
    def rack_id(self) -> str: ...  # 11-18
    @property
    def replica_id(self) -> NodeId: ...  # 4-14


class FetchRequestFields(TypedDict, total=False):
    cluster_id: str | None  # 12-18
    replica_state: ReplicaStateFields  # 15-18
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int  # 7-18
    session_epoch: int  # 7-18
    topics: Sequence[FetchTopicFields]
    forgotten_topics_data: Sequence[ForgottenTopicFields]  # 7-18
    rack_id: str  # 11-18
    replica_id: int  # 4-14


class ReplicaState(Protocol):
    @property
    def replica_id(self) -> NodeId: ...  # 15-18
    @property
    def replica_epoch(self) -> int: ...  # 15-18


class ReplicaStateFields(TypedDict, total=False):
    replica_id: int  # 15-18
    replica_epoch: int  # 15-18


class FetchTopic(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...  # 13-18
    @property
    def partitions(self) -> tuple[FetchPartition, ...]: ...
    @property
    def topic(self) -> str: ...  # 4-12


class FetchTopicFields(TypedDict, total=False):
    topic_id: UUID | None  # 13-18
    partitions: Sequence[FetchPartitionFields]
    topic: str  # 4-12


class FetchPartition(Protocol):
    @property
    def partition(self) -> int: ...
    @property
    def current_leader_epoch(self) -> int: ...  # 9-18
    @property
    def fetch_offset(self) -> int: ...
    @property
    def last_fetched_epoch(self) -> int: ...  # 12-18
    @property
    def log_start_offset(self) -> int: ...  # 5-18
    @property
    def partition_max_bytes(self) -> int: ...
    @property
    def replica_directory_id(self) -> UUID | None: ...  # 17-18
    @property
    def high_watermark(self) -> int: ...  # 18


class FetchPartitionFields(TypedDict, total=False):
    partition: int
    current_leader_epoch: int  # 9-18
    fetch_offset: int
    last_fetched_epoch: int  # 12-18
    log_start_offset: int  # 5-18
    partition_max_bytes: int
    replica_directory_id: UUID | None  # 17-18
    high_watermark: int  # 18


class ForgottenTopic(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...  # 13-18
    @property
    def partitions(self) -> tuple[int, ...]: ...  # 7-18
    @property
    def topic(self) -> str: ...  # 7-12


class ForgottenTopicFields(TypedDict, total=False):
    topic_id: UUID | None  # 13-18
    partitions: Sequence[int]  # 7-18
    topic: str  # 7-12


class FetchResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...  # 7-18
    @property
    def session_id(self) -> int: ...  # 7-18
    @property
    def responses(self) -> tuple[FetchableTopicResponse, ...]: ...
    @property
    def node_endpoints(self) -> tuple[NodeEndpoint, ...]: ...  # 16-18


class FetchResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int  # 7-18
    session_id: int  # 7-18
    responses: Sequence[FetchableTopicResponseFields]
    node_endpoints: Sequence[NodeEndpointFields]  # 16-18


class FetchableTopicResponse(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...  # 13-18
    @property
    def partitions(self) -> tuple[PartitionData, ...]: ...
    @property
    def topic(self) -> str: ...  # 4-12


class FetchableTopicResponseFields(TypedDict, total=False):
    topic_id: UUID | None  # 13-18
    partitions: Sequence[PartitionDataFields]
    topic: str  # 4-12


class PartitionData(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...  # 5-18
    @property
    def diverging_epoch(self) -> EpochEndOffset: ...  # 12-18
    @property
    def current_leader(self) -> LeaderIdAndEpoch: ...  # 12-18
    @property
    def snapshot_id(self) -> SnapshotId: ...  # 12-18
    @property
    def aborted_transactions(self) -> tuple[AbortedTransaction, ...] | None: ...
    @property
    def preferred_read_replica(self) -> NodeId: ...  # 11-18
    @property
    def records(self) -> bytes | None: ...


class PartitionDataFields(TypedDict, total=False):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int  # 5-18
    diverging_epoch: EpochEndOffsetFields  # 12-18
    current_leader: LeaderIdAndEpochFields  # 12-18
    snapshot_id: SnapshotIdFields  # 12-18
    aborted_transactions: Sequence[AbortedTransactionFields] | None
    preferred_read_replica: int  # 11-18
    records: Data | None


class EpochEndOffset(Protocol):
    @property
    def epoch(self) -> int: ...  # 12-18
    @property
    def end_offset(self) -> int: ...  # 12-18


class EpochEndOffsetFields(TypedDict, total=False):
    epoch: int  # 12-18
    end_offset: int  # 12-18


class LeaderIdAndEpoch(Protocol):
    @property
    def leader_id(self) -> NodeId: ...  # 12-18
    @property
    def leader_epoch(self) -> int: ...  # 12-18


class LeaderIdAndEpochFields(TypedDict, total=False):
    leader_id: int  # 12-18
    leader_epoch: int  # 12-18


class SnapshotId(Protocol):
    @property
    def end_offset(self) -> int: ...  # 12-18
    @property
    def epoch(self) -> int: ...  # 12-18


class SnapshotIdFields(TypedDict, total=False):
    end_offset: int  # 12-18
    epoch: int  # 12-18


class AbortedTransaction(Protocol):
    @property
    def producer_id(self) -> ProducerId: ...
    @property
    def first_offset(self) -> int: ...


class AbortedTransactionFields(TypedDict, total=False):
    producer_id: int
    first_offset: int


class NodeEndpoint(Protocol):
    @property
    def node_id(self) -> NodeId: ...  # 16-18
    @property
    def host(self) -> str: ...  # 16-18
    @property
    def port(self) -> int: ...  # 16-18
    @property
    def rack(self) -> str | None: ...  # 16-18


class NodeEndpointFields(TypedDict, total=False):
    node_id: int  # 16-18
    host: str  # 16-18
    port: int  # 16-18
    rack: str | None  # 16-18
