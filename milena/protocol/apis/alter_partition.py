"""AlterPartition (56), versions 2-3. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID

from milena.protocol.types import NodeId


class AlterPartitionRequest(Protocol):
    @property
    def broker_id(self) -> NodeId: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def topics(self) -> tuple[RequestTopicData, ...]: ...


class AlterPartitionRequestFields(TypedDict, total=False):
    broker_id: int
    broker_epoch: int
    topics: Sequence[RequestTopicDataFields]


class RequestTopicData(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def partitions(self) -> tuple[RequestPartitionData, ...]: ...


class RequestTopicDataFields(TypedDict, total=False):
    topic_id: UUID | None
    partitions: Sequence[RequestPartitionDataFields]


class RequestPartitionData(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def new_isr_with_epochs(self) -> tuple[BrokerState, ...]: ...  # 3
    @property
    def leader_recovery_state(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def new_isr(self) -> tuple[NodeId, ...]: ...  # 2


class RequestPartitionDataFields(TypedDict, total=False):
    partition_index: int
    leader_epoch: int
    new_isr_with_epochs: Sequence[BrokerStateFields]  # 3
    leader_recovery_state: int
    partition_epoch: int
    new_isr: Sequence[int]  # 2


class BrokerState(Protocol):
    @property
    def broker_id(self) -> NodeId: ...  # 3
    @property
    def broker_epoch(self) -> int: ...  # 3


class BrokerStateFields(TypedDict, total=False):
    broker_id: int  # 3
    broker_epoch: int  # 3


class AlterPartitionResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def topics(self) -> tuple[ResponseTopicData, ...]: ...


class AlterPartitionResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    topics: Sequence[ResponseTopicDataFields]


class ResponseTopicData(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def partitions(self) -> tuple[ResponsePartitionData, ...]: ...


class ResponseTopicDataFields(TypedDict, total=False):
    topic_id: UUID | None
    partitions: Sequence[ResponsePartitionDataFields]


class ResponsePartitionData(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def leader_id(self) -> NodeId: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def isr(self) -> tuple[NodeId, ...]: ...
    @property
    def leader_recovery_state(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...


class ResponsePartitionDataFields(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    leader_recovery_state: int
    partition_epoch: int
