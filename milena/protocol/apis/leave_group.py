"""LeaveGroup (13), versions 0-5. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class LeaveGroupRequest(Protocol):
    @property
    def group_id(self) -> str: ...
    @property
    def members(self) -> tuple[MemberIdentity, ...]: ...  # 3-5
    @property
    def member_id(self) -> str: ...  # 0-2


class LeaveGroupRequestFields(TypedDict, total=False):
    group_id: str
    members: Sequence[MemberIdentityFields]  # 3-5
    member_id: str  # 0-2


class MemberIdentity(Protocol):
    @property
    def member_id(self) -> str: ...  # 3-5
    @property
    def group_instance_id(self) -> str | None: ...  # 3-5
    @property
    def reason(self) -> str | None: ...  # 5


class MemberIdentityFields(TypedDict, total=False):
    member_id: str  # 3-5
    group_instance_id: str | None  # 3-5
    reason: str | None  # 5


class LeaveGroupResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...  # 1-5
    @property
    def error_code(self) -> int: ...
    @property
    def members(self) -> tuple[MemberResponse, ...]: ...  # 3-5


class LeaveGroupResponseFields(TypedDict, total=False):
    throttle_time_ms: int  # 1-5
    error_code: int
    members: Sequence[MemberResponseFields]  # 3-5


class MemberResponse(Protocol):
    @property
    def member_id(self) -> str: ...  # 3-5
    @property
    def group_instance_id(self) -> str | None: ...  # 3-5
    @property
    def error_code(self) -> int: ...  # 3-5


class MemberResponseFields(TypedDict, total=False):
    member_id: str  # 3-5
    group_instance_id: str | None  # 3-5
    error_code: int  # 3-5
