"""Decides which records of a batch a cleaning keeps, by the rules of Kafka's ``Cleaner``.

- The last record of each key before the end of the offset map is kept. Records without a key are removed.
- A tombstone is kept until the delete horizon of its batch, which is set by the first cleaning that keeps the
  tombstone.
- Data of aborted transactions is removed at once. A marker is removed when the log has no other batch of its
  transaction and its delete horizon has passed.
- The last batch of each producer is kept, empty if need be, since it has the producer's last sequence. The last batch
  before the first uncleanable offset is kept, too.

A compressed batch that expands beyond the limit is kept unchanged, and so are all tombstones after it, since they may
delete one of its records. Kafka allocates the memory that such a batch needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from milena.protocol.records.batch import BatchView
from milena.protocol.records.compression import DecompressionBomb
from milena.protocol.records.record_cursor import RecordCursor
from milena.protocol.types import Offset, ProducerEpoch, ProducerId
from milena.runtime.disk import Bytes
from milena.storage.cleaning.offset_map import OffsetMap
from milena.storage.cleaning.rebuilt_batch import KeptRecord, delete_horizon, emptied, rebuilt
from milena.storage.cleaning.transactions import CleanedTransactions

_LATEST: Final = (1 << 63) - 1


class LastRecord(NamedTuple):
    """The last batch of a producer."""

    last_data_offset: int
    """The last offset of its last data batch, -1 if the log has only its marker."""
    epoch: ProducerEpoch


class Rules(NamedTuple):
    """The parameters of one round of cleaning."""

    map: OffsetMap
    map_end: Offset
    """The offset after the last record in the map."""
    end: Offset
    """The first uncleanable offset."""
    now: int
    """ms."""
    delete_retention_ms: int
    producers: Mapping[ProducerId, LastRecord]
    limit: int
    """The maximum decompressed size of a batch (bytes)."""
    longest: int
    """The maximum size of a record of a compressed batch (bytes)."""


class Retained:
    """Filters the batches of one round. Takes the batches of a log in order."""

    def __init__(self, rules: Rules, transactions: CleanedTransactions) -> None:
        self.now: int | None = rules.now
        """The time (ms) that is compared with delete horizons. None: all tombstones and markers are kept, and no delete
        horizon is set."""
        self._rules = rules
        self._transactions = transactions
        self.read = 0
        """The number of records read."""
        self.kept = 0
        self.without_key = 0
        """The number of records removed because they have no key."""
        self._unread = False
        """Whether there was a batch that is too large to be decompressed."""

    def of(self, batch: BatchView) -> Bytes:
        """Return the batch that replaces ``batch``, which may be the same; empty if it is removed. Raises
        CorruptBatch."""
        may_go = self._transactions.meets(batch)
        horizon = delete_horizon(batch)
        if batch.is_control:
            all_go = may_go and horizon is not None and self.now is not None and horizon <= self.now
        else:
            all_go = may_go
        try:
            records, whole, tombstones = ([], False, False) if all_go else self._records(batch, horizon)
        except DecompressionBomb:  # it is kept unread, and so are the tombstones after it
            self._unread = True
            return batch.memory
        self.kept += len(records)
        if not records:
            return emptied(batch) if self._is_needed(batch) else b""
        new_horizon = self._new_horizon
        if horizon is None and new_horizon is not None and (tombstones or (may_go and batch.is_control)):
            return rebuilt(batch, records, new_horizon)
        return batch.memory if whole else rebuilt(batch, records, horizon)

    @property
    def _new_horizon(self) -> int | None:
        """The delete horizon (ms) for tombstones that have none; None if none is set now. A horizon beyond 64 bits is
        not set, so that the tombstone is kept for ever, as in Kafka, where the sum overflows."""
        if self.now is None:
            return None
        horizon = self.now + self._rules.delete_retention_ms
        return horizon if horizon <= _LATEST else None

    def _is_needed(self, batch: BatchView) -> bool:
        """Whether ``batch`` is kept even if it has no records left."""
        if batch.next_offset == self._rules.end:
            return True
        if not batch.has_producer_id:
            return False
        last = self._rules.producers.get(batch.producer_id)
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.epoch

    def _records(self, batch: BatchView, horizon: int | None) -> tuple[list[KeptRecord], bool, bool]:
        """Return the records that are kept, whether these are all, and whether there are tombstones among them."""
        records: list[KeptRecord] = []
        tombstones = False
        cursor = RecordCursor(batch, self._rules.limit, self._rules.longest)
        deletes_stay = horizon is None or self.now is None or self.now < horizon or self._unread
        read = 0
        while cursor.advance():
            read += 1
            if batch.is_control or self._stays(cursor, batch.base_offset, deletes_stay):
                records.append(KeptRecord(cursor.encoded, cursor.timestamp_delta))
                tombstones = tombstones or cursor.value_length < 0
        self.read += read
        return records, len(records) == read, tombstones

    def _stays(self, record: RecordCursor, base: Offset, deletes_stay: bool) -> bool:
        offset = base + int(record.offset_delta)
        if offset >= self._rules.map_end:
            return True
        key = record.key
        if key is None:
            self.without_key += 1
            return False
        return (record.value_length >= 0 or deletes_stay) and offset >= self._rules.map.get(key)
