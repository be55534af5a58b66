"""AlterClientQuotas (49), versions 0-1. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class AlterClientQuotasRequest(Protocol):
    @property
    def entries(self) -> tuple[RequestEntryData, ...]: ...
    @property
    def validate_only(self) -> bool: ...


class AlterClientQuotasRequestFields(TypedDict, total=False):
    entries: Sequence[RequestEntryDataFields]
    validate_only: bool


class RequestEntryData(Protocol):
    @property
    def entity(self) -> tuple[RequestEntityData, ...]: ...
    @property
    def ops(self) -> tuple[OpData, ...]: ...


class RequestEntryDataFields(TypedDict, total=False):
    entity: Sequence[RequestEntityDataFields]
    ops: Sequence[OpDataFields]


class RequestEntityData(Protocol):
    @property
    def entity_type(self) -> str: ...
    @property
    def entity_name(self) -> str | None: ...


class RequestEntityDataFields(TypedDict, total=False):
    entity_type: str
    entity_name: str | None


class OpData(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def value(self) -> float: ...
    @property
    def remove(self) -> bool: ...


class OpDataFields(TypedDict, total=False):
    key: str
    value: float
    remove: bool


class AlterClientQuotasResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def entries(self) -> tuple[ResponseEntryData, ...]: ...


class AlterClientQuotasResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    entries: Sequence[ResponseEntryDataFields]


class ResponseEntryData(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def entity(self) -> tuple[ResponseEntityData, ...]: ...


class ResponseEntryDataFields(TypedDict, total=False):
    error_code: int
    error_message: str | None
    entity: Sequence[ResponseEntityDataFields]


class ResponseEntityData(Protocol):
    @property
    def entity_type(self) -> str: ...
    @property
    def entity_name(self) -> str | None: ...


class ResponseEntityDataFields(TypedDict, total=False):
    entity_type: str
    entity_name: str | None
