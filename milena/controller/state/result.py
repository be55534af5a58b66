"""The result of a command: its records and its response; and the part of the controller that commits it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from milena.controller.state.state import ControllerState
from milena.node.api import Fields
from milena.protocol.cooperative import Cooperative
from milena.protocol.metadata_records import MetadataRecord

MAX_RECORDS_PER_BATCH: Final = 10_000
"""Also the limit of records that one request may generate, because they are written in one batch."""

RECORDS_PER_STEP: Final = 1_000
"""A request that asks for more topics, partitions or keys is decided, encoded and written in separate steps."""

T = TypeVar("T")
F = TypeVar("F", bound=Fields)


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """Records in order and a response. ``atomic`` records form one batch; others may be split if necessary."""

    records: Sequence[MetadataRecord]
    response: T
    atomic: bool = True

    def without_records(self) -> Result[T]:
        """Return the result for a request that only validates."""
        return Result((), self.response)


class Committing(Protocol):
    """The state on which commands decide, and the function that writes their records."""

    @property
    def state(self) -> ControllerState: ...

    def write(self, result: Result[T]) -> None:
        """Write a part of a command's records now; a later ``commit`` waits for them, too. Raises KafkaError."""
        ...

    def commit_in_steps(
        self, decide: Callable[[], Result[T]], answer: Callable[[T], F]
    ) -> Cooperative[F | Awaitable[F]]:
        """Like ``commit`` with the result of ``decide``, for many records: yields between the decision, the encoding
        and the write. ``decide`` is called again if the metadata have changed before the write. Raises its errors."""
        ...

    def commit(self, result: Result[T], answer: Callable[[T], F]) -> F | Awaitable[F]:
        """Write a command's records now; the response is sent once they are committed. Raises KafkaError."""
        ...
