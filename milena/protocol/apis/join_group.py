"""JoinGroup (11), versions 0-9. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from milena.protocol.schemas.primitives import Data


class JoinGroupRequest(Protocol):
    @property
    def group_id(self) -> str: ...
    @property
    def session_timeout(self) -> int: ...
    @property
    def rebalance_timeout(self) -> int: ...  # 1-9
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...  # 5-9
    @property
    def protocol_type(self) -> str: ...
    @property
    def protocols(self) -> tuple[JoinGroupRequestProtocol, ...]: ...
    @property
    def reason(self) -> str | None: ...  # 8-9


class JoinGroupRequestFields(TypedDict, total=False):
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int  # 1-9
    member_id: str
    group_instance_id: str | None  # 5-9
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocolFields]
    reason: str | None  # 8-9


class JoinGroupRequestProtocol(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def metadata(self) -> bytes: ...


class JoinGroupRequestProtocolFields(TypedDict, total=False):
    name: str
    metadata: Data


class JoinGroupResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...  # 2-9
    @property
    def error_code(self) -> int: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def protocol_type(self) -> str | None: ...  # 7-9
    @property
    def protocol_name(self) -> str | None: ...
    @property
    def leader(self) -> str: ...
    @property
    def skip_assignment(self) -> bool: ...  # 9
    @property
    def member_id(self) -> str: ...
    @property
    def members(self) -> tuple[JoinGroupResponseMember, ...]: ...


class JoinGroupResponseFields(TypedDict, total=False):
    throttle_time_ms: int  # 2-9
    error_code: int
    generation_id: int
    protocol_type: str | None  # 7-9
    protocol_name: str | None
    leader: str
    skip_assignment: bool  # 9
    member_id: str
    members: Sequence[JoinGroupResponseMemberFields]


class JoinGroupResponseMember(Protocol):
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...  # 5-9
    @property
    def metadata(self) -> bytes: ...


class JoinGroupResponseMemberFields(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None  # 5-9
    metadata: Data
