"""UnregisterBroker (64), version 0. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from typing import Protocol, TypedDict

from milena.protocol.types import NodeId


class UnregisterBrokerRequest(Protocol):
    @property
    def broker_id(self) -> NodeId: ...


class UnregisterBrokerRequestFields(TypedDict, total=False):
    broker_id: int


class UnregisterBrokerResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...


class UnregisterBrokerResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
