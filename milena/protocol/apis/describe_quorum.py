"""DescribeQuorum (55), versions 0-2. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID

from milena.protocol.types import NodeId


class DescribeQuorumRequest(Protocol):
    @property
    def topics(self) -> tuple[RequestTopicData, ...]: ...


class DescribeQuorumRequestFields(TypedDict, total=False):
    topics: Sequence[RequestTopicDataFields]


class RequestTopicData(Protocol):
    @property
    def topic_name(self) -> str: ...
    @property
    def partitions(self) -> tuple[RequestPartitionData, ...]: ...


class RequestTopicDataFields(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[RequestPartitionDataFields]


class RequestPartitionData(Protocol):
    @property
    def partition_index(self) -> int: ...


class RequestPartitionDataFields(TypedDict, total=False):
    partition_index: int


class DescribeQuorumResponse(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...  # 2
    @property
    def topics(self) -> tuple[ResponseTopicData, ...]: ...
    @property
    def nodes(self) -> tuple[Node, ...]: ...  # 2


class DescribeQuorumResponseFields(TypedDict, total=False):
    error_code: int
    error_message: str | None  # 2
    topics: Sequence[ResponseTopicDataFields]
    nodes: Sequence[NodeFields]  # 2


class ResponseTopicData(Protocol):
    @property
    def topic_name(self) -> str: ...
    @property
    def partitions(self) -> tuple[ResponsePartitionData, ...]: ...


class ResponseTopicDataFields(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[ResponsePartitionDataFields]


class ResponsePartitionData(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...  # 2
    @property
    def leader_id(self) -> NodeId: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def current_voters(self) -> tuple[ReplicaState, ...]: ...
    @property
    def observers(self) -> tuple[ReplicaState, ...]: ...


class ResponsePartitionDataFields(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None  # 2
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: Sequence[ReplicaStateFields]
    observers: Sequence[ReplicaStateFields]


class ReplicaState(Protocol):
    @property
    def replica_id(self) -> NodeId: ...
    @property
    def replica_directory_id(self) -> UUID | None: ...  # 2
    @property
    def log_end_offset(self) -> int: ...
    @property
    def last_fetch_timestamp(self) -> int: ...  # 1-2
    @property
    def last_caught_up_timestamp(self) -> int: ...  # 1-2


class ReplicaStateFields(TypedDict, total=False):
    replica_id: int
    replica_directory_id: UUID | None  # 2
    log_end_offset: int
    last_fetch_timestamp: int  # 1-2
    last_caught_up_timestamp: int  # 1-2


class Node(Protocol):
    @property
    def node_id(self) -> NodeId: ...  # 2
    @property
    def listeners(self) -> tuple[Listener, ...]: ...  # 2


class NodeFields(TypedDict, total=False):
    node_id: int  # 2
    listeners: Sequence[ListenerFields]  # 2


class Listener(Protocol):
    @property
    def name(self) -> str: ...  # 2
    @property
    def host(self) -> str: ...  # 2
    @property
    def port(self) -> int: ...  # 2


class ListenerFields(TypedDict, total=False):
    name: str  # 2
    host: str  # 2
    port: int  # 2
