"""Produce (0), versions 3-13. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID

from milena.protocol.schemas.primitives import Data
from milena.protocol.types import NodeId


class ProduceRequest(Protocol):
    @property
    def transactional_id(self) -> str | None: ...
    @property
    def acks(self) -> int: ...
    @property
    def timeout(self) -> int: ...
    @property
    def topic_data(self) -> tuple[TopicProduceData, ...]: ...


class ProduceRequestFields(TypedDict, total=False):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: Sequence[TopicProduceDataFields]


class TopicProduceData(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...  # 13
    @property
    def partition_data(self) -> tuple[PartitionProduceData, ...]: ...
    @property
    def name(self) -> str: ...  # 3-12


class TopicProduceDataFields(TypedDict, total=False):
    topic_id: UUID | None  # 13
    partition_data: Sequence[PartitionProduceDataFields]
    name: str  # 3-12


class PartitionProduceData(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def records(self) -> bytes | None: ...


class PartitionProduceDataFields(TypedDict, total=False):
    index: int
    records: Data | None


class ProduceResponse(Protocol):
    @property
    def responses(self) -> tuple[TopicProduceResponse, ...]: ...
    @property
    def throttle_time(self) -> int: ...
    @property
    def node_endpoints(self) -> tuple[NodeEndpoint, ...]: ...  # 10-13


class ProduceResponseFields(TypedDict, total=False):
    responses: Sequence[TopicProduceResponseFields]
    throttle_time_ms: int
    node_endpoints: Sequence[NodeEndpointFields]  # 10-13


class TopicProduceResponse(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...  # 13
    @property
    def partition_responses(self) -> tuple[PartitionProduceResponse, ...]: ...
    @property
    def name(self) -> str: ...  # 3-12


class TopicProduceResponseFields(TypedDict, total=False):
    topic_id: UUID | None  # 13
    partition_responses: Sequence[PartitionProduceResponseFields]
    name: str  # 3-12


class PartitionProduceResponse(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def log_append_time(self) -> int | None: ...
    @property
    def log_start_offset(self) -> int: ...  # 5-13
    @property
    def record_errors(self) -> tuple[BatchIndexAndErrorMessage, ...]: ...  # 8-13
    @property
    def error_message(self) -> str | None: ...  # 8-13
    @property
    def current_leader(self) -> LeaderIdAndEpoch: ...  # 10-13


class PartitionProduceResponseFields(TypedDict, total=False):
    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int | None
    log_start_offset: int  # 5-13
    record_errors: Sequence[BatchIndexAndErrorMessageFields]  # 8-13
    error_message: str | None  # 8-13
    current_leader: LeaderIdAndEpochFields  # 10-13


class BatchIndexAndErrorMessage(Protocol):
    @property
    def batch_index(self) -> int: ...  # 8-13
    @property
    def batch_index_error_message(self) -> str | None: ...  # 8-13


class BatchIndexAndErrorMessageFields(TypedDict, total=False):
    batch_index: int  # 8-13
    batch_index_error_message: str | None  # 8-13


class LeaderIdAndEpoch(Protocol):
    @property
    def leader_id(self) -> NodeId: ...  # 10-13
    @property
    def leader_epoch(self) -> int: ...  # 10-13


class LeaderIdAndEpochFields(TypedDict, total=False):
    leader_id: int  # 10-13
    leader_epoch: int  # 10-13


class NodeEndpoint(Protocol):
    @property
    def node_id(self) -> NodeId: ...  # 10-13
    @property
    def host(self) -> str: ...  # 10-13
    @property
    def port(self) -> int: ...  # 10-13
    @property
    def rack(self) -> str | None: ...  # 10-13


class NodeEndpointFields(TypedDict, total=False):
    node_id: int  # 10-13
    host: str  # 10-13
    port: int  # 10-13
    rack: str | None  # 10-13
