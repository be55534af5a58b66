"""Builds the transactional ids of a partition of ``__transaction_state`` from its log, as cooperative work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from milena.broker.transactions.model import Transaction
from milena.broker.transactions.shard import Shard
from milena.broker.transactions.store import Restorer
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.records import transaction_records as records
from milena.protocol.records.batch import CorruptBatch, iter_batches
from milena.protocol.records.records import Record, iter_records
from milena.runtime.limited_log import LimitedLog

RECORDS_PER_YIELD: Final = 250
"""Records that are read between two yields: a few milliseconds."""
_BYTES_PER_UNIT: Final = 64
"""A record counts as 1 and one more per 64 bytes of its value: a transaction may have thousands of partitions."""


class ReadableLog(Protocol):
    """The log of a partition of ``__transaction_state``."""

    def pieces(self) -> Iterator[memoryview]:
        """Yield whole batches from the log start to the log end at the first call. Each piece is read when the iterator
        is advanced. Raises KafkaError."""
        ...


def load(log: ReadableLog, shard: Shard, events: LimitedLog) -> Cooperative[None]:
    """Load all transactional ids of ``log`` and add them to the shard, all in the last step. Raises KafkaError,
    CorruptBatch, DecodeError."""
    loader = Loader(events)
    for piece in log.pieces():
        yield
        yield from loader.apply(piece)
    shard.add_loaded(loader.transactions)


class Loader:
    """Reads the records of one partition; the last record of each id counts. Records of unknown types and versions are
    ignored, as in Kafka."""

    def __init__(self, events: LimitedLog) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._events = events
        self._budget = YieldBudget(RECORDS_PER_YIELD)
        self._restorer = Restorer()

    def apply(self, data: memoryview) -> Cooperative[None]:
        """Read whole batches. Raises CorruptBatch, DecodeError."""
        for view in iter_batches(data):
            if self._budget.spend(1):
                yield
            if view.is_control:
                continue
            for record in iter_records(view):
                self._apply_record(record)
                if self._budget.spend(1 + len(record.value or b"") // _BYTES_PER_UNIT):
                    yield

    def _apply_record(self, record: Record) -> None:
        if record.key is None:
            raise CorruptBatch("a record of __transaction_state without a key")
        key = records.decode_transaction_key(record.key)
        if isinstance(key, records.UnknownTransactionKey):
            self._events.warning("unknown record of __transaction_state ignored", type=key.type)
            return
        value = records.decode_transaction_value(record.value)
        if value is None:
            self.transactions.pop(key.transactional_id, None)
        elif isinstance(value, records.UnknownTransactionValue):
            self._events.warning("unknown record of __transaction_state ignored", version=value.version)
        else:
            self.transactions[key.transactional_id] = self._restored(key.transactional_id, value)

    def _restored(self, transactional_id: str, value: records.TransactionLogValue) -> Transaction:
        try:
            return self._restorer.restored(value)
        except ValueError as error:
            raise CorruptBatch(f"transactional id {transactional_id}: {error}") from None
