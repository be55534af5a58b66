"""AllocateProducerIds (67), version 0. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from typing import Protocol, TypedDict

from milena.protocol.types import NodeId, ProducerId


class AllocateProducerIdsRequest(Protocol):
    @property
    def broker_id(self) -> NodeId: ...
    @property
    def broker_epoch(self) -> int: ...


class AllocateProducerIdsRequestFields(TypedDict, total=False):
    broker_id: int
    broker_epoch: int


class AllocateProducerIdsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def producer_id_start(self) -> ProducerId: ...
    @property
    def producer_id_len(self) -> int: ...


class AllocateProducerIdsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    producer_id_start: int
    producer_id_len: int
