"""Builds the records that the coordinator writes to ``__transaction_state``, and the states from them (Kafka's
``TransactionLog``)."""

from __future__ import annotations

from typing import Final

from milena.broker.transactions.model import Transaction
from milena.broker.transactions.partitions import NO_PARTITIONS, TransactionPartitions
from milena.protocol.records import transaction_records as records
from milena.protocol.records.records import BatchBuilder
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.types import ProducerEpoch, ProducerId

TAGGED_SINCE: Final = 1
"""From this level of ``transaction.version`` on, values have version 1."""


def key_of(transactional_id: str) -> bytes:
    return records.encode_transaction_key(records.TransactionLogKey(transactional_id=transactional_id))


def state_batch(transactional_id: str, transaction: Transaction, *, version: int, now_ms: int) -> bytes:
    """One batch with the record of a state. ``version``: the level of ``transaction.version``."""
    builder = BatchBuilder()
    builder.append(timestamp=now_ms, key=key_of(transactional_id), value=_encoded(transaction, version))
    return builder.build()


def _encoded(transaction: Transaction, version: int) -> bytes:
    value = records.TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=_by_topic(transaction.partitions)
        if transaction.state is not TransactionState.EMPTY
        else None,
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    return records.encode_transaction_value(value, 1 if version >= TAGGED_SINCE else 0)


def _by_topic(partitions: TransactionPartitions) -> tuple[records.TransactionLogPartitions, ...]:
    return tuple(
        records.TransactionLogPartitions(topic=topic, partition_ids=tuple(indices))
        for topic, indices in partitions.by_topic.items()
    )


class Restorer:
    """Builds states from values. Equal numbers of different ids are one object: a broker may load a million ids."""

    def __init__(self) -> None:
        self._timeouts: dict[int, int] = {}

    def restored(self, value: records.TransactionLogValue) -> Transaction:
        """Raises ValueError if the state is unknown."""
        producer_id = ProducerId(value.producer_id)
        previous = ProducerId(value.previous_producer_id)
        start_ms, update_ms = value.transaction_start_timestamp_ms, value.transaction_last_update_timestamp_ms
        state = TransactionState(value.transaction_status)
        return Transaction(
            producer_id,
            ProducerEpoch(value.producer_epoch),
            self._timeouts.setdefault(value.transaction_timeout_ms, value.transaction_timeout_ms),
            state,
            update_ms,
            update_ms if start_ms == update_ms else start_ms,
            NO_PARTITIONS if state is TransactionState.EMPTY else _partitions(value),
            previous_producer_id=producer_id if previous == producer_id else previous,
            next_producer_id=ProducerId(value.next_producer_id),
            client_version=value.client_transaction_version,
        )


def _partitions(value: records.TransactionLogValue) -> TransactionPartitions:
    by_topic: dict[str, dict[int, None]] = {}
    for one in value.transaction_partitions or ():
        if one.partition_ids:
            by_topic.setdefault(one.topic, {}).update(dict.fromkeys(one.partition_ids))
    return TransactionPartitions(by_topic) if by_topic else NO_PARTITIONS
