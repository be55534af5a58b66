"""Metadata (3), versions 0-13. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID

from milena.protocol.types import NodeId


class MetadataRequest(Protocol):
    @property
    def topics(self) -> tuple[MetadataRequestTopic, ...] | None: ...
    @property
    def allow_auto_topic_creation(self) -> bool: ...  # 4-13
    @property
    def include_topic_authorized_operations(self) -> bool: ...  # 8-13
    @property
    def include_cluster_authorized_operations(self) -> bool: ...  # 8-10


class MetadataRequestFields(TypedDict, total=False):
    topics: Sequence[MetadataRequestTopicFields] | None
    allow_auto_topic_creation: bool  # 4-13
    include_topic_authorized_operations: bool  # 8-13
    include_cluster_authorized_operations: bool  # 8-10


class MetadataRequestTopic(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...  # 10-13
    @property
    def name(self) -> str | None: ...


class MetadataRequestTopicFields(TypedDict, total=False):
    topic_id: UUID | None  # 10-13
    name: str | None


class MetadataResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...  # 3-13
    @property
    def brokers(self) -> tuple[MetadataResponseBroker, ...]: ...
    @property
    def cluster_id(self) -> str | None: ...  # 2-13
    @property
    def controller_id(self) -> NodeId: ...  # 1-13
    @property
    def topics(self) -> tuple[MetadataResponseTopic, ...]: ...
    @property
    def error_code(self) -> int: ...  # 13
    @property
    def cluster_authorized_operations(self) -> int: ...  # 8-10


class MetadataResponseFields(TypedDict, total=False):
    throttle_time_ms: int  # 3-13
    brokers: Sequence[MetadataResponseBrokerFields]
    cluster_id: str | None  # 2-13
    controller_id: int  # 1-13
    topics: Sequence[MetadataResponseTopicFields]
    error_code: int  # 13
    cluster_authorized_operations: int  # 8-10


class MetadataResponseBroker(Protocol):
    @property
    def node_id(self) -> NodeId: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def rack(self) -> str | None: ...  # 1-13


class MetadataResponseBrokerFields(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None  # 1-13


class MetadataResponseTopic(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def name(self) -> str | None: ...
    @property
    def topic_id(self) -> UUID | None: ...  # 10-13
    @property
    def is_internal(self) -> bool: ...  # 1-13
    @property
    def partitions(self) -> tuple[MetadataResponsePartition, ...]: ...
    @property
    def topic_authorized_operations(self) -> int: ...  # 8-13


class MetadataResponseTopicFields(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: UUID | None  # 10-13
    is_internal: bool  # 1-13
    partitions: Sequence[MetadataResponsePartitionFields]
    topic_authorized_operations: int  # 8-13


class MetadataResponsePartition(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def partition_index(self) -> int: ...
    @property
    def leader_id(self) -> NodeId: ...
    @property
    def leader_epoch(self) -> int: ...  # 7-13
    @property
    def replica_nodes(self) -> tuple[NodeId, ...]: ...
    @property
    def isr_nodes(self) -> tuple[NodeId, ...]: ...
    @property
    def offline_replicas(self) -> tuple[NodeId, ...]: ...  # 5-13


class MetadataResponsePartitionFields(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int  # 7-13
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]  # 5-13
