"""CreateTopics (19), versions 2-7. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID

from milena.protocol.types import NodeId


class CreateTopicsRequest(Protocol):
    @property
    def topics(self) -> tuple[CreatableTopic, ...]: ...
    @property
    def timeout(self) -> int: ...
    @property
    def validate_only(self) -> bool: ...


class CreateTopicsRequestFields(TypedDict, total=False):
    topics: Sequence[CreatableTopicFields]
    timeout_ms: int
    validate_only: bool


class CreatableTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def num_partitions(self) -> int: ...
    @property
    def replication_factor(self) -> int: ...
    @property
    def assignments(self) -> tuple[CreatableReplicaAssignment, ...]: ...
    @property
    def configs(self) -> tuple[CreatableTopicConfig, ...]: ...


class CreatableTopicFields(TypedDict, total=False):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreatableReplicaAssignmentFields]
    configs: Sequence[CreatableTopicConfigFields]


class CreatableReplicaAssignment(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def broker_ids(self) -> tuple[NodeId, ...]: ...


class CreatableReplicaAssignmentFields(TypedDict, total=False):
    partition_index: int
    broker_ids: Sequence[int]


class CreatableTopicConfig(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str | None: ...


class CreatableTopicConfigFields(TypedDict, total=False):
    name: str
    value: str | None


class CreateTopicsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def topics(self) -> tuple[CreatableTopicResult, ...]: ...


class CreateTopicsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[CreatableTopicResultFields]


class CreatableTopicResult(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> UUID | None: ...  # 7
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def topic_config_error_code(self) -> int: ...  # 5-7
    @property
    def num_partitions(self) -> int: ...  # 5-7
    @property
    def replication_factor(self) -> int: ...  # 5-7
    @property
    def configs(self) -> tuple[CreatableTopicConfigs, ...] | None: ...  # 5-7


class CreatableTopicResultFields(TypedDict, total=False):
    name: str
    topic_id: UUID | None  # 7
    error_code: int
    error_message: str | None
    topic_config_error_code: int  # 5-7
    num_partitions: int  # 5-7
    replication_factor: int  # 5-7
    configs: Sequence[CreatableTopicConfigsFields] | None  # 5-7


class CreatableTopicConfigs(Protocol):
    @property
    def name(self) -> str: ...  # 5-7
    @property
    def value(self) -> str | None: ...  # 5-7
    @property
    def read_only(self) -> bool: ...  # 5-7
    @property
    def config_source(self) -> int: ...  # 5-7
    @property
    def is_sensitive(self) -> bool: ...  # 5-7


class CreatableTopicConfigsFields(TypedDict, total=False):
    name: str  # 5-7
    value: str | None  # 5-7
    read_only: bool  # 5-7
    config_source: int  # 5-7
    is_sensitive: bool  # 5-7
