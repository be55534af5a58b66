"""UnregisterController (94), version 0."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerRequest:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 94
    controller_id: int = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerResponse:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 94
    throttle_time: int = field(metadata={"kafka_type": "timedelta_i32"})
    error_code: int = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
