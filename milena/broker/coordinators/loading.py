"""Reads the log of a shard, as cooperative work (Kafka's ``CoordinatorLoader`` and ``CoordinatorPlayback``).

A large log takes seconds, and a broker may become the leader of many partitions at once: at each yield other requests
are served and heartbeats are sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final, Protocol

from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.records.batch import BatchView, iter_batches
from milena.protocol.records.record_cursor import RecordCursor

RECORDS_PER_YIELD: Final = 250
"""Records, or what is built from them, that are handled between two yields: a few milliseconds."""
_BYTES_PER_UNIT: Final = 64
"""A record counts as 1 and one more per 64 bytes of its value: that of a large group or transaction takes longer."""


def units(value_length: int) -> int:
    """What a record counts in the budget. ``value_length``: bytes."""
    return 1 + value_length // _BYTES_PER_UNIT


class ReadableLog(Protocol):
    """The log of a partition."""

    def pieces(self) -> Iterator[memoryview]:
        """Yield whole batches from the log start to the log end at the first call. Each piece is read when the iterator
        is advanced. Raises KafkaError, CorruptBatch."""
        ...


class Loader(ABC):
    """Builds the state of a shard from the records of one partition; the last record of each key counts."""

    def __init__(self) -> None:
        self._budget = YieldBudget(RECORDS_PER_YIELD)

    def read(self, log: ReadableLog) -> Cooperative[None]:
        """Read the whole log. Raises KafkaError, CorruptBatch, DecodeError."""
        for piece in log.pieces():
            yield
            yield from self.apply(piece)

    def apply(self, data: memoryview) -> Cooperative[None]:
        """Read whole batches. Raises CorruptBatch, DecodeError."""
        for batch in iter_batches(data):
            if self._budget.spend(1):
                yield
            if batch.is_control:
                yield from self._apply_control(batch)
                continue
            cursor = RecordCursor(batch)
            while cursor.advance():
                self._apply_record(cursor.key, cursor.value, batch)
                if self._budget.spend(units(max(cursor.value_length, 0))):
                    yield

    @abstractmethod
    def _apply_record(self, key: bytes | None, value: bytes | None, batch: BatchView) -> None:
        """Apply one record of ``batch``. Raises CorruptBatch, DecodeError."""

    def _apply_control(self, batch: BatchView) -> Cooperative[None]:
        """Apply a control batch. By default it is ignored."""
        yield from ()
