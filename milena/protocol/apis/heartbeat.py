"""Heartbeat (12), versions 0-4. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from typing import Protocol, TypedDict


class HeartbeatRequest(Protocol):
    @property
    def group_id(self) -> str: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...  # 3-4


class HeartbeatRequestFields(TypedDict, total=False):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None  # 3-4


class HeartbeatResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...  # 1-4
    @property
    def error_code(self) -> int: ...


class HeartbeatResponseFields(TypedDict, total=False):
    throttle_time_ms: int  # 1-4
    error_code: int
