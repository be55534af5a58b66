"""BrokerHeartbeat (63), versions 0-2. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID

from milena.protocol.types import NodeId


class BrokerHeartbeatRequest(Protocol):
    @property
    def broker_id(self) -> NodeId: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def current_metadata_offset(self) -> int: ...
    @property
    def want_fence(self) -> bool: ...
    @property
    def want_shut_down(self) -> bool: ...
    @property
    def offline_log_dirs(self) -> tuple[UUID | None, ...]: ...  # 1-2
    @property
    def cordoned_log_dirs(self) -> tuple[UUID | None, ...] | None: ...  # 2


class BrokerHeartbeatRequestFields(TypedDict, total=False):
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: Sequence[UUID | None]  # 1-2
    cordoned_log_dirs: Sequence[UUID | None] | None  # 2


class BrokerHeartbeatResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def is_caught_up(self) -> bool: ...
    @property
    def is_fenced(self) -> bool: ...
    @property
    def should_shut_down(self) -> bool: ...


class BrokerHeartbeatResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
