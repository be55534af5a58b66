"""FetchSnapshot (59), versions 0-1. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID

from milena.protocol.schemas.primitives import Data
from milena.protocol.types import NodeId


class FetchSnapshotRequest(Protocol):
    @property
    def cluster_id(self) -> str | None: ...
    @property
    def replica_id(self) -> NodeId: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def topics(self) -> tuple[RequestTopicSnapshot, ...]: ...


class FetchSnapshotRequestFields(TypedDict, total=False):
    cluster_id: str | None
    replica_id: int
    max_bytes: int
    topics: Sequence[RequestTopicSnapshotFields]


class RequestTopicSnapshot(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[RequestPartitionSnapshot, ...]: ...


class RequestTopicSnapshotFields(TypedDict, total=False):
    name: str
    partitions: Sequence[RequestPartitionSnapshotFields]


class RequestPartitionSnapshot(Protocol):
    @property
    def partition(self) -> int: ...
    @property
    def current_leader_epoch(self) -> int: ...
    @property
    def snapshot_id(self) -> RequestSnapshotId: ...
    @property
    def position(self) -> int: ...
    @property
    def replica_directory_id(self) -> UUID | None: ...  # 1


class RequestPartitionSnapshotFields(TypedDict, total=False):
    partition: int
    current_leader_epoch: int
    snapshot_id: RequestSnapshotIdFields
    position: int
    replica_directory_id: UUID | None  # 1


class RequestSnapshotId(Protocol):
    @property
    def end_offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...


class RequestSnapshotIdFields(TypedDict, total=False):
    end_offset: int
    epoch: int


class FetchSnapshotResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def topics(self) -> tuple[ResponseTopicSnapshot, ...]: ...
    @property
    def node_endpoints(self) -> tuple[NodeEndpoint, ...]: ...  # 1


class FetchSnapshotResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    topics: Sequence[ResponseTopicSnapshotFields]
    node_endpoints: Sequence[NodeEndpointFields]  # 1


class ResponseTopicSnapshot(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[ResponsePartitionSnapshot, ...]: ...


class ResponseTopicSnapshotFields(TypedDict, total=False):
    name: str
    partitions: Sequence[ResponsePartitionSnapshotFields]


class ResponsePartitionSnapshot(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def snapshot_id(self) -> ResponseSnapshotId: ...
    @property
    def current_leader(self) -> LeaderIdAndEpoch: ...
    @property
    def size(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def unaligned_records(self) -> bytes: ...


class ResponsePartitionSnapshotFields(TypedDict, total=False):
    index: int
    error_code: int
    snapshot_id: ResponseSnapshotIdFields
    current_leader: LeaderIdAndEpochFields
    size: int
    position: int
    unaligned_records: Data


class ResponseSnapshotId(Protocol):
    @property
    def end_offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...


class ResponseSnapshotIdFields(TypedDict, total=False):
    end_offset: int
    epoch: int


class LeaderIdAndEpoch(Protocol):
    @property
    def leader_id(self) -> NodeId: ...
    @property
    def leader_epoch(self) -> int: ...


class LeaderIdAndEpochFields(TypedDict, total=False):
    leader_id: int
    leader_epoch: int


class NodeEndpoint(Protocol):
    @property
    def node_id(self) -> NodeId: ...  # 1
    @property
    def host(self) -> str: ...  # 1
    @property
    def port(self) -> int: ...  # 1


class NodeEndpointFields(TypedDict, total=False):
    node_id: int  # 1
    host: str  # 1
    port: int  # 1
