"""The result of a command: the records of its change, and the response to send once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from milena.protocol.metadata_records import MetadataRecord

MAX_RECORDS_PER_BATCH: Final = 10_000
"""Also the limit of records that one request may generate, because they are written in one batch."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """Records in order and a response. ``atomic`` records form one batch; others may be split if necessary."""

    records: Sequence[MetadataRecord]
    response: T
    atomic: bool = True

    def without_records(self) -> Result[T]:
        """Return the result for a request that only validates."""
        return Result((), self.response)
