"""Builds the transactional ids of a partition of ``__transaction_state`` from its log, as cooperative work."""

from __future__ import annotations

from milena.broker.coordinators import loading as coordinators
from milena.broker.coordinators.loading import ReadableLog, units
from milena.broker.transactions.census import counted
from milena.broker.transactions.model import Transaction
from milena.broker.transactions.shard import Shard
from milena.broker.transactions.store import Restorer
from milena.protocol.cooperative import Cooperative
from milena.protocol.records import transaction_records as records
from milena.protocol.records.batch import BatchView, CorruptBatch
from milena.runtime.limited_log import LimitedLog


def load(log: ReadableLog, shard: Shard, events: LimitedLog) -> Cooperative[None]:
    """Load all transactional ids of ``log`` and add them to the shard, all in the last step. Raises KafkaError,
    CorruptBatch, DecodeError."""
    loader = Loader(events)
    yield from loader.read(log)
    transactions = yield from loader.finish()
    shard.add_loaded(transactions, (yield from counted(transactions)))


class Loader(coordinators.Loader):
    """Builds transactional ids. Control batches, and records of unknown types and versions are ignored, as in Kafka.

    Only the last value of each key is decoded: a transaction has four records or more, and decoding takes three
    quarters of the time. Errors in values that a later record replaces are therefore not noticed."""

    def __init__(self, events: LimitedLog) -> None:
        super().__init__()
        self._values: dict[bytes, bytes] = {}
        """The last value of each key that has no tombstone after it."""
        self._events = events
        self._restorer = Restorer()

    def _apply_record(self, key: bytes | None, value: bytes | None, batch: BatchView) -> None:
        if key is None:
            raise CorruptBatch("a record of __transaction_state without a key")
        if not key.startswith(records.KNOWN_KEYS):
            self._ignore(records.decode_transaction_key(key))
        elif value is None:
            if self._values.pop(key, None) is None:
                records.decode_transaction_key(key)  # it may be damaged
        elif value.startswith(records.KNOWN_VALUES):
            self._values[key] = value
        else:
            self._ignore(records.decode_transaction_value(value))

    def _ignore(self, unknown: object) -> None:
        self._events.warning("unknown record of __transaction_state ignored", record=unknown)

    def finish(self) -> Cooperative[dict[str, Transaction]]:
        """Return the state of each transactional id. Call it once, after the last record. Raises CorruptBatch,
        DecodeError."""
        transactions: dict[str, Transaction] = {}
        for raw_key in list(self._values):
            value = self._values.pop(raw_key)
            key = records.decode_transaction_key(raw_key)
            assert isinstance(key, records.TransactionLogKey)
            transactions[key.transactional_id] = self._state(key.transactional_id, value)
            if self._budget.spend(units(len(value))):
                yield
        return transactions

    def _state(self, transactional_id: str, raw_value: bytes) -> Transaction:
        value = records.decode_transaction_value(raw_value)
        assert isinstance(value, records.TransactionLogValue)
        try:
            return self._restorer.restored(value)
        except ValueError as error:
            raise CorruptBatch(f"transactional id {transactional_id}: {error}") from None
