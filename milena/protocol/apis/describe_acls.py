"""DescribeAcls (29), versions 1-3. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class DescribeAclsRequest(Protocol):
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


class DescribeAclsRequestFields(TypedDict, total=False):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DescribeAclsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def resources(self) -> tuple[DescribeAclsResource, ...]: ...


class DescribeAclsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: Sequence[DescribeAclsResourceFields]


class DescribeAclsResource(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def pattern_type(self) -> int: ...
    @property
    def acls(self) -> tuple[AclDescription, ...]: ...


class DescribeAclsResourceFields(TypedDict, total=False):
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: Sequence[AclDescriptionFields]


class AclDescription(Protocol):
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


class AclDescriptionFields(TypedDict, total=False):
    principal: str
    host: str
    operation: int
    permission_type: int
