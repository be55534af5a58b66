"""ApiVersions (18), versions 0-4. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class ApiVersionsRequest(Protocol):
    @property
    def client_software_name(self) -> str: ...  # 3-4
    @property
    def client_software_version(self) -> str: ...  # 3-4


class ApiVersionsRequestFields(TypedDict, total=False):
    client_software_name: str  # 3-4
    client_software_version: str  # 3-4


class ApiVersionsResponse(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def api_keys(self) -> tuple[ApiVersion, ...]: ...
    @property
    def throttle_time(self) -> int: ...  # 1-4
    @property
    def supported_features(self) -> tuple[SupportedFeatureKey, ...]: ...  # 3-4
    @property
    def finalized_features_epoch(self) -> int: ...  # 3-4
    @property
    def finalized_features(self) -> tuple[FinalizedFeatureKey, ...]: ...  # 3-4
    @property
    def zk_migration_ready(self) -> bool: ...  # 3-4


class ApiVersionsResponseFields(TypedDict, total=False):
    error_code: int
    api_keys: Sequence[ApiVersionFields]
    throttle_time_ms: int  # 1-4
    supported_features: Sequence[SupportedFeatureKeyFields]  # 3-4
    finalized_features_epoch: int  # 3-4
    finalized_features: Sequence[FinalizedFeatureKeyFields]  # 3-4
    zk_migration_ready: bool  # 3-4


class ApiVersion(Protocol):
    @property
    def api_key(self) -> int: ...
    @property
    def min_version(self) -> int: ...
    @property
    def max_version(self) -> int: ...


class ApiVersionFields(TypedDict, total=False):
    api_key: int
    min_version: int
    max_version: int


class SupportedFeatureKey(Protocol):
    @property
    def name(self) -> str: ...  # 3-4
    @property
    def min_version(self) -> int: ...  # 3-4
    @property
    def max_version(self) -> int: ...  # 3-4


class SupportedFeatureKeyFields(TypedDict, total=False):
    name: str  # 3-4
    min_version: int  # 3-4
    max_version: int  # 3-4


class FinalizedFeatureKey(Protocol):
    @property
    def name(self) -> str: ...  # 3-4
    @property
    def max_version_level(self) -> int: ...  # 3-4
    @property
    def min_version_level(self) -> int: ...  # 3-4


class FinalizedFeatureKeyFields(TypedDict, total=False):
    name: str  # 3-4
    max_version_level: int  # 3-4
    min_version_level: int  # 3-4
