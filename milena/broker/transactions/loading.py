"""Builds the transactional ids of a partition of ``__transaction_state`` from its log, as cooperative work."""

from __future__ import annotations

from milena.broker.coordinators import loading as coordinators
from milena.broker.coordinators.loading import ReadableLog
from milena.broker.transactions.census import counted
from milena.broker.transactions.model import Transaction
from milena.broker.transactions.shard import Shard
from milena.broker.transactions.store import Restorer
from milena.protocol.cooperative import Cooperative
from milena.protocol.records import transaction_records as records
from milena.protocol.records.batch import BatchView, CorruptBatch
from milena.protocol.records.records import Record
from milena.runtime.limited_log import LimitedLog


def load(log: ReadableLog, shard: Shard, events: LimitedLog) -> Cooperative[None]:
    """Load all transactional ids of ``log`` and add them to the shard, all in the last step. Raises KafkaError,
    CorruptBatch, DecodeError."""
    loader = Loader(events)
    yield from loader.read(log)
    shard.add_loaded(loader.transactions, (yield from counted(loader.transactions)))


class Loader(coordinators.Loader):
    """Builds transactional ids. Control batches, and records of unknown types and versions are
    ignored, as in Kafka."""

    def __init__(self, events: LimitedLog) -> None:
        super().__init__()
        self.transactions: dict[str, Transaction] = {}
        self._events = events
        self._restorer = Restorer()

    def _apply_record(self, record: Record, batch: BatchView) -> None:
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
