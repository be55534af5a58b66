"""ListGroups (16), versions 0-5. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class ListGroupsRequest(Protocol):
    @property
    def states_filter(self) -> tuple[str, ...]: ...  # 4-5
    @property
    def types_filter(self) -> tuple[str, ...]: ...  # 5


class ListGroupsRequestFields(TypedDict, total=False):
    states_filter: Sequence[str]  # 4-5
    types_filter: Sequence[str]  # 5


class ListGroupsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...  # 1-5
    @property
    def error_code(self) -> int: ...
    @property
    def groups(self) -> tuple[ListedGroup, ...]: ...


class ListGroupsResponseFields(TypedDict, total=False):
    throttle_time_ms: int  # 1-5
    error_code: int
    groups: Sequence[ListedGroupFields]


class ListedGroup(Protocol):
    @property
    def group_id(self) -> str: ...
    @property
    def protocol_type(self) -> str: ...
    @property
    def group_state(self) -> str: ...  # 4-5
    @property
    def group_type(self) -> str: ...  # 5


class ListedGroupFields(TypedDict, total=False):
    group_id: str
    protocol_type: str
    group_state: str  # 4-5
    group_type: str  # 5
