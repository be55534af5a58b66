"""ListConfigResources (74), versions 0-1. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class ListConfigResourcesRequest(Protocol):
    @property
    def resource_types(self) -> tuple[int, ...]: ...  # 1


class ListConfigResourcesRequestFields(TypedDict, total=False):
    resource_types: Sequence[int]  # 1


class ListConfigResourcesResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def config_resources(self) -> tuple[ConfigResource, ...]: ...


class ListConfigResourcesResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    config_resources: Sequence[ConfigResourceFields]


class ConfigResource(Protocol):
    @property
    def resource_name(self) -> str: ...
    @property
    def resource_type(self) -> int: ...  # 1


class ConfigResourceFields(TypedDict, total=False):
    resource_name: str
    resource_type: int  # 1
