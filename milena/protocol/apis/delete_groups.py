"""DeleteGroups (42), versions 0-2. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class DeleteGroupsRequest(Protocol):
    @property
    def groups_names(self) -> tuple[str, ...]: ...


class DeleteGroupsRequestFields(TypedDict, total=False):
    groups_names: Sequence[str]


class DeleteGroupsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def results(self) -> tuple[DeletableGroupResult, ...]: ...


class DeleteGroupsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[DeletableGroupResultFields]


class DeletableGroupResult(Protocol):
    @property
    def group_id(self) -> str: ...
    @property
    def error_code(self) -> int: ...


class DeletableGroupResultFields(TypedDict, total=False):
    group_id: str
    error_code: int
