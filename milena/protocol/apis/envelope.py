"""Envelope (58), version 0. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from typing import Protocol, TypedDict

from milena.protocol.schemas.primitives import Data


class EnvelopeRequest(Protocol):
    @property
    def request_data(self) -> bytes: ...
    @property
    def request_principal(self) -> bytes | None: ...
    @property
    def client_host_address(self) -> bytes: ...


class EnvelopeRequestFields(TypedDict, total=False):
    request_data: Data
    request_principal: Data | None
    client_host_address: Data


class EnvelopeResponse(Protocol):
    @property
    def response_data(self) -> bytes | None: ...
    @property
    def error_code(self) -> int: ...


class EnvelopeResponseFields(TypedDict, total=False):
    response_data: Data | None
    error_code: int
