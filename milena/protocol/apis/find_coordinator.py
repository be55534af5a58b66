"""FindCoordinator (10), versions 0-6. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from milena.protocol.types import NodeId


class FindCoordinatorRequest(Protocol):
    @property
    def key_type(self) -> int: ...  # 1-6
    @property
    def coordinator_keys(self) -> tuple[str, ...]: ...  # 4-6
    @property
    def key(self) -> str: ...  # 0-3


class FindCoordinatorRequestFields(TypedDict, total=False):
    key_type: int  # 1-6
    coordinator_keys: Sequence[str]  # 4-6
    key: str  # 0-3


class FindCoordinatorResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...  # 1-6
    @property
    def coordinators(self) -> tuple[Coordinator, ...]: ...  # 4-6
    @property
    def error_code(self) -> int: ...  # 0-3
    @property
    def error_message(self) -> str | None: ...  # 1-3
    @property
    def node_id(self) -> NodeId: ...  # 0-3
    @property
    def host(self) -> str: ...  # 0-3
    @property
    def port(self) -> int: ...  # 0-3


class FindCoordinatorResponseFields(TypedDict, total=False):
    throttle_time_ms: int  # 1-6
    coordinators: Sequence[CoordinatorFields]  # 4-6
    error_code: int  # 0-3
    error_message: str | None  # 1-3
    node_id: int  # 0-3
    host: str  # 0-3
    port: int  # 0-3


class Coordinator(Protocol):
    @property
    def key(self) -> str: ...  # 4-6
    @property
    def node_id(self) -> NodeId: ...  # 4-6
    @property
    def host(self) -> str: ...  # 4-6
    @property
    def port(self) -> int: ...  # 4-6
    @property
    def error_code(self) -> int: ...  # 4-6
    @property
    def error_message(self) -> str | None: ...  # 4-6


class CoordinatorFields(TypedDict, total=False):
    key: str  # 4-6
    node_id: int  # 4-6
    host: str  # 4-6
    port: int  # 4-6
    error_code: int  # 4-6
    error_message: str | None  # 4-6
