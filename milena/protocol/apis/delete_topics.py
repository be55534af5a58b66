"""DeleteTopics (20), versions 1-6. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict
from uuid import UUID


class DeleteTopicsRequest(Protocol):
    @property
    def topics(self) -> tuple[DeleteTopicState, ...]: ...  # 6
    @property
    def timeout(self) -> int: ...
    @property
    def topic_names(self) -> tuple[str, ...]: ...  # 1-5


class DeleteTopicsRequestFields(TypedDict, total=False):
    topics: Sequence[DeleteTopicStateFields]  # 6
    timeout_ms: int
    topic_names: Sequence[str]  # 1-5


class DeleteTopicState(Protocol):
    @property
    def name(self) -> str | None: ...  # 6
    @property
    def topic_id(self) -> UUID | None: ...  # 6


class DeleteTopicStateFields(TypedDict, total=False):
    name: str | None  # 6
    topic_id: UUID | None  # 6


class DeleteTopicsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def responses(self) -> tuple[DeletableTopicResult, ...]: ...


class DeleteTopicsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    responses: Sequence[DeletableTopicResultFields]


class DeletableTopicResult(Protocol):
    @property
    def name(self) -> str | None: ...
    @property
    def topic_id(self) -> UUID | None: ...  # 6
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...  # 5-6


class DeletableTopicResultFields(TypedDict, total=False):
    name: str | None
    topic_id: UUID | None  # 6
    error_code: int
    error_message: str | None  # 5-6
