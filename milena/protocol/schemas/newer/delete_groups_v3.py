"""DeleteGroups (42), version 3: the response has a message for each group."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsRequest:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 42
    groups_names: tuple[str, ...] = field(metadata={"kafka_type": "string"}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResult:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 42
    group_id: str = field(metadata={"kafka_type": "string"})
    error_code: int = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 42
    throttle_time: int = field(metadata={"kafka_type": "timedelta_i32"})
    results: tuple[DeletableGroupResult, ...]
