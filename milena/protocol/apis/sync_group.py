"""SyncGroup (14), versions 0-5. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from milena.protocol.schemas.primitives import Data


class SyncGroupRequest(Protocol):
    @property
    def group_id(self) -> str: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...  # 3-5
    @property
    def protocol_type(self) -> str | None: ...  # 5
    @property
    def protocol_name(self) -> str | None: ...  # 5
    @property
    def assignments(self) -> tuple[SyncGroupRequestAssignment, ...]: ...


class SyncGroupRequestFields(TypedDict, total=False):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None  # 3-5
    protocol_type: str | None  # 5
    protocol_name: str | None  # 5
    assignments: Sequence[SyncGroupRequestAssignmentFields]


class SyncGroupRequestAssignment(Protocol):
    @property
    def member_id(self) -> str: ...
    @property
    def assignment(self) -> bytes: ...


class SyncGroupRequestAssignmentFields(TypedDict, total=False):
    member_id: str
    assignment: Data


class SyncGroupResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...  # 1-5
    @property
    def error_code(self) -> int: ...
    @property
    def protocol_type(self) -> str | None: ...  # 5
    @property
    def protocol_name(self) -> str | None: ...  # 5
    @property
    def assignment(self) -> bytes: ...


class SyncGroupResponseFields(TypedDict, total=False):
    throttle_time_ms: int  # 1-5
    error_code: int
    protocol_type: str | None  # 5
    protocol_name: str | None  # 5
    assignment: Data
