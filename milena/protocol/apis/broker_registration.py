"""BrokerRegistration (62), versions 0-4. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID

from milena.protocol.types import NodeId


class BrokerRegistrationRequest(Protocol):
    @property
    def broker_id(self) -> NodeId: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def incarnation_id(self) -> UUID | None: ...
    @property
    def listeners(self) -> tuple[Listener, ...]: ...
    @property
    def features(self) -> tuple[Feature, ...]: ...
    @property
    def rack(self) -> str | None: ...
    @property
    def is_migrating_zk_broker(self) -> bool: ...  # 1-4
    @property
    def log_dirs(self) -> tuple[UUID | None, ...]: ...  # 2-4
    @property
    def previous_broker_epoch(self) -> int: ...  # 3-4


class BrokerRegistrationRequestFields(TypedDict, total=False):
    broker_id: int
    cluster_id: str
    incarnation_id: UUID | None
    listeners: Sequence[ListenerFields]
    features: Sequence[FeatureFields]
    rack: str | None
    is_migrating_zk_broker: bool  # 1-4
    log_dirs: Sequence[UUID | None]  # 2-4
    previous_broker_epoch: int  # 3-4


class Listener(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def security_protocol(self) -> int: ...


class ListenerFields(TypedDict, total=False):
    name: str
    host: str
    port: int
    security_protocol: int


class Feature(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def min_supported_version(self) -> int: ...
    @property
    def max_supported_version(self) -> int: ...


class FeatureFields(TypedDict, total=False):
    name: str
    min_supported_version: int
    max_supported_version: int


class BrokerRegistrationResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...


class BrokerRegistrationResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    broker_epoch: int
