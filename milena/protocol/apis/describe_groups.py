"""DescribeGroups (15), versions 0-6. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from milena.protocol.schemas.primitives import Data


class DescribeGroupsRequest(Protocol):
    @property
    def groups(self) -> tuple[str, ...]: ...
    @property
    def include_authorized_operations(self) -> bool: ...  # 3-6


class DescribeGroupsRequestFields(TypedDict, total=False):
    groups: Sequence[str]
    include_authorized_operations: bool  # 3-6


class DescribeGroupsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...  # 1-6
    @property
    def groups(self) -> tuple[DescribedGroup, ...]: ...


class DescribeGroupsResponseFields(TypedDict, total=False):
    throttle_time_ms: int  # 1-6
    groups: Sequence[DescribedGroupFields]


class DescribedGroup(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...  # 6
    @property
    def group_id(self) -> str: ...
    @property
    def group_state(self) -> str: ...
    @property
    def protocol_type(self) -> str: ...
    @property
    def protocol_data(self) -> str: ...
    @property
    def members(self) -> tuple[DescribedGroupMember, ...]: ...
    @property
    def authorized_operations(self) -> int: ...  # 3-6


class DescribedGroupFields(TypedDict, total=False):
    error_code: int
    error_message: str | None  # 6
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribedGroupMemberFields]
    authorized_operations: int  # 3-6


class DescribedGroupMember(Protocol):
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...  # 4-6
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def member_metadata(self) -> bytes: ...
    @property
    def member_assignment(self) -> bytes: ...


class DescribedGroupMemberFields(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None  # 4-6
    client_id: str
    client_host: str
    member_metadata: Data
    member_assignment: Data
