"""InitProducerId (22), versions 0-5. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from typing import Protocol, TypedDict

from milena.protocol.types import ProducerId


class InitProducerIdRequest(Protocol):
    @property
    def transactional_id(self) -> str | None: ...
    @property
    def transaction_timeout(self) -> int: ...
    @property
    def producer_id(self) -> ProducerId: ...  # 3-5
    @property
    def producer_epoch(self) -> int: ...  # 3-5


class InitProducerIdRequestFields(TypedDict, total=False):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int  # 3-5
    producer_epoch: int  # 3-5


class InitProducerIdResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def producer_id(self) -> ProducerId: ...
    @property
    def producer_epoch(self) -> int: ...


class InitProducerIdResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
