"""UpdateFeatures (57), versions 0-2. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class UpdateFeaturesRequest(Protocol):
    @property
    def timeout(self) -> int: ...
    @property
    def feature_updates(self) -> tuple[FeatureUpdateKey, ...]: ...
    @property
    def validate_only(self) -> bool: ...  # 1-2


class UpdateFeaturesRequestFields(TypedDict, total=False):
    timeout_ms: int
    feature_updates: Sequence[FeatureUpdateKeyFields]
    validate_only: bool  # 1-2


class FeatureUpdateKey(Protocol):
    @property
    def feature(self) -> str: ...
    @property
    def max_version_level(self) -> int: ...
    @property
    def upgrade_type(self) -> int: ...  # 1-2
    @property
    def allow_downgrade(self) -> bool: ...  # 0


class FeatureUpdateKeyFields(TypedDict, total=False):
    feature: str
    max_version_level: int
    upgrade_type: int  # 1-2
    allow_downgrade: bool  # 0


class UpdateFeaturesResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def results(self) -> tuple[UpdatableFeatureResult, ...]: ...  # 0-1


class UpdateFeaturesResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[UpdatableFeatureResultFields]  # 0-1


class UpdatableFeatureResult(Protocol):
    @property
    def feature(self) -> str: ...  # 0-1
    @property
    def error_code(self) -> int: ...  # 0-1
    @property
    def error_message(self) -> str | None: ...  # 0-1


class UpdatableFeatureResultFields(TypedDict, total=False):
    feature: str  # 0-1
    error_code: int  # 0-1
    error_message: str | None  # 0-1
