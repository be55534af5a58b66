"""DescribeConfigs (32), versions 1-4. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class DescribeConfigsRequest(Protocol):
    @property
    def resources(self) -> tuple[DescribeConfigsResource, ...]: ...
    @property
    def include_synonyms(self) -> bool: ...
    @property
    def include_documentation(self) -> bool: ...  # 3-4


class DescribeConfigsRequestFields(TypedDict, total=False):
    resources: Sequence[DescribeConfigsResourceFields]
    include_synonyms: bool
    include_documentation: bool  # 3-4


class DescribeConfigsResource(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configuration_keys(self) -> tuple[str, ...] | None: ...


class DescribeConfigsResourceFields(TypedDict, total=False):
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None


class DescribeConfigsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def results(self) -> tuple[DescribeConfigsResult, ...]: ...


class DescribeConfigsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[DescribeConfigsResultFields]


class DescribeConfigsResult(Protocol):
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> tuple[DescribeConfigsResourceResult, ...]: ...


class DescribeConfigsResultFields(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResourceResultFields]


class DescribeConfigsResourceResult(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str | None: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def config_source(self) -> int: ...
    @property
    def is_sensitive(self) -> bool: ...
    @property
    def synonyms(self) -> tuple[DescribeConfigsSynonym, ...]: ...
    @property
    def config_type(self) -> int: ...  # 3-4
    @property
    def documentation(self) -> str | None: ...  # 3-4


class DescribeConfigsResourceResultFields(TypedDict, total=False):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: Sequence[DescribeConfigsSynonymFields]
    config_type: int  # 3-4
    documentation: str | None  # 3-4


class DescribeConfigsSynonym(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str | None: ...
    @property
    def source(self) -> int: ...


class DescribeConfigsSynonymFields(TypedDict, total=False):
    name: str
    value: str | None
    source: int
