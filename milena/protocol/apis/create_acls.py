"""CreateAcls (30), versions 1-3. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class CreateAclsRequest(Protocol):
    @property
    def creations(self) -> tuple[AclCreation, ...]: ...


class CreateAclsRequestFields(TypedDict, total=False):
    creations: Sequence[AclCreationFields]


class AclCreation(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def resource_pattern_type(self) -> int: ...
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


class AclCreationFields(TypedDict, total=False):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class CreateAclsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def results(self) -> tuple[AclCreationResult, ...]: ...


class CreateAclsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[AclCreationResultFields]


class AclCreationResult(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...


class AclCreationResultFields(TypedDict, total=False):
    error_code: int
    error_message: str | None
