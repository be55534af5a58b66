"""DescribeClientQuotas (48), versions 0-1. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class DescribeClientQuotasRequest(Protocol):
    @property
    def components(self) -> tuple[ComponentData, ...]: ...
    @property
    def strict(self) -> bool: ...


class DescribeClientQuotasRequestFields(TypedDict, total=False):
    components: Sequence[ComponentDataFields]
    strict: bool


class ComponentData(Protocol):
    @property
    def entity_type(self) -> str: ...
    @property
    def match_type(self) -> int: ...
    @property
    def match(self) -> str | None: ...


class ComponentDataFields(TypedDict, total=False):
    entity_type: str
    match_type: int
    match: str | None


class DescribeClientQuotasResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def entries(self) -> tuple[EntryData, ...] | None: ...


class DescribeClientQuotasResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: Sequence[EntryDataFields] | None


class EntryData(Protocol):
    @property
    def entity(self) -> tuple[EntityData, ...]: ...
    @property
    def values(self) -> tuple[ValueData, ...]: ...


class EntryDataFields(TypedDict, total=False):
    entity: Sequence[EntityDataFields]
    values: Sequence[ValueDataFields]


class EntityData(Protocol):
    @property
    def entity_type(self) -> str: ...
    @property
    def entity_name(self) -> str | None: ...


class EntityDataFields(TypedDict, total=False):
    entity_type: str
    entity_name: str | None


class ValueData(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def value(self) -> float: ...


class ValueDataFields(TypedDict, total=False):
    key: str
    value: float
