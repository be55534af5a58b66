"""DescribeCluster (60), versions 0-2. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from milena.protocol.types import NodeId


class DescribeClusterRequest(Protocol):
    @property
    def include_cluster_authorized_operations(self) -> bool: ...
    @property
    def endpoint_type(self) -> int: ...  # 1-2
    @property
    def include_fenced_brokers(self) -> bool: ...  # 2


class DescribeClusterRequestFields(TypedDict, total=False):
    include_cluster_authorized_operations: bool
    endpoint_type: int  # 1-2
    include_fenced_brokers: bool  # 2


class DescribeClusterResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def endpoint_type(self) -> int: ...  # 1-2
    @property
    def cluster_id(self) -> str: ...
    @property
    def controller_id(self) -> NodeId: ...
    @property
    def brokers(self) -> tuple[DescribeClusterBroker, ...]: ...
    @property
    def cluster_authorized_operations(self) -> int: ...


class DescribeClusterResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int  # 1-2
    cluster_id: str
    controller_id: int
    brokers: Sequence[DescribeClusterBrokerFields]
    cluster_authorized_operations: int


class DescribeClusterBroker(Protocol):
    @property
    def broker_id(self) -> NodeId: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def rack(self) -> str | None: ...
    @property
    def is_fenced(self) -> bool: ...  # 2


class DescribeClusterBrokerFields(TypedDict, total=False):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool  # 2
