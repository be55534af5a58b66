"""CreatePartitions (37), versions 0-3. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from milena.protocol.types import NodeId


class CreatePartitionsRequest(Protocol):
    @property
    def topics(self) -> tuple[CreatePartitionsTopic, ...]: ...
    @property
    def timeout(self) -> int: ...
    @property
    def validate_only(self) -> bool: ...


class CreatePartitionsRequestFields(TypedDict, total=False):
    topics: Sequence[CreatePartitionsTopicFields]
    timeout_ms: int
    validate_only: bool


class CreatePartitionsTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def assignments(self) -> tuple[CreatePartitionsAssignment, ...] | None: ...


class CreatePartitionsTopicFields(TypedDict, total=False):
    name: str
    count: int
    assignments: Sequence[CreatePartitionsAssignmentFields] | None


class CreatePartitionsAssignment(Protocol):
    @property
    def broker_ids(self) -> tuple[NodeId, ...]: ...


class CreatePartitionsAssignmentFields(TypedDict, total=False):
    broker_ids: Sequence[int]


class CreatePartitionsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def results(self) -> tuple[CreatePartitionsTopicResult, ...]: ...


class CreatePartitionsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[CreatePartitionsTopicResultFields]


class CreatePartitionsTopicResult(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...


class CreatePartitionsTopicResultFields(TypedDict, total=False):
    name: str
    error_code: int
    error_message: str | None
