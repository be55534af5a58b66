"""What a command returns: the records that make its change, and the answer for when they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from milena.protocol.metadata_records import MetadataRecord

MAX_RECORDS_PER_BATCH: Final = 10_000
"""Also the most that one user's request may generate, because such a result is written in one batch."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """Records in order and a response. ``atomic`` ones go into one batch; others may be cut where that is needed."""

    records: Sequence[MetadataRecord]
    response: T
    atomic: bool = True

    def without_records(self) -> Result[T]:
        """Of a request that only validates."""
        return Result((), self.response)
