"""DescribeProducers (61), version 0. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from milena.protocol.types import ProducerId


class DescribeProducersRequest(Protocol):
    @property
    def topics(self) -> tuple[TopicRequest, ...]: ...


class DescribeProducersRequestFields(TypedDict, total=False):
    topics: Sequence[TopicRequestFields]


class TopicRequest(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partition_indexes(self) -> tuple[int, ...]: ...


class TopicRequestFields(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]


class DescribeProducersResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def topics(self) -> tuple[TopicResponse, ...]: ...


class DescribeProducersResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[TopicResponseFields]


class TopicResponse(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> tuple[PartitionResponse, ...]: ...


class TopicResponseFields(TypedDict, total=False):
    name: str
    partitions: Sequence[PartitionResponseFields]


class PartitionResponse(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def active_producers(self) -> tuple[ProducerState, ...]: ...


class PartitionResponseFields(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: Sequence[ProducerStateFields]


class ProducerState(Protocol):
    @property
    def producer_id(self) -> ProducerId: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def last_timestamp(self) -> int: ...
    @property
    def coordinator_epoch(self) -> int: ...
    @property
    def current_txn_start_offset(self) -> int: ...


class ProducerStateFields(TypedDict, total=False):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
