"""DeleteAcls (31), versions 1-3. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class DeleteAclsRequest(Protocol):
    @property
    def filters(self) -> tuple[DeleteAclsFilter, ...]: ...


class DeleteAclsRequestFields(TypedDict, total=False):
    filters: Sequence[DeleteAclsFilterFields]


class DeleteAclsFilter(Protocol):
    @property
    def resource_type_filter(self) -> int: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> int: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


class DeleteAclsFilterFields(TypedDict, total=False):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DeleteAclsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def filter_results(self) -> tuple[DeleteAclsFilterResult, ...]: ...


class DeleteAclsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    filter_results: Sequence[DeleteAclsFilterResultFields]


class DeleteAclsFilterResult(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def matching_acls(self) -> tuple[DeleteAclsMatchingAcl, ...]: ...


class DeleteAclsFilterResultFields(TypedDict, total=False):
    error_code: int
    error_message: str | None
    matching_acls: Sequence[DeleteAclsMatchingAclFields]


class DeleteAclsMatchingAcl(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def pattern_type(self) -> int: ...
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


class DeleteAclsMatchingAclFields(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
