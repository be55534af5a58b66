"""What a cleaning keeps of a batch, by the rules of Kafka's ``Cleaner``.

Of each key, the last record before the end of the offset map stays. A tombstone stays until the delete horizon of its
batch, which the first cleaning sets that leaves the tombstone in place; a record without a key goes. Data of aborted
transactions goes at once, and a transaction's marker when nothing else is left of it and its delete horizon has
passed. The last batch of each producer stays, perhaps empty, since it tells the last sequence; so does the last batch
of what may be cleaned.

A compressed batch that grows beyond the limit stays as it is, and no tombstone behind it goes: it may delete one of its
records. Kafka takes the memory that it needs.
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
    """What a producer has written last."""

    last_data_offset: int
    """Of its last batch with data; -1 if the log has only its marker."""
    epoch: ProducerEpoch


class Rules(NamedTuple):
    """What decides in one round of cleaning."""

    map: OffsetMap
    map_end: Offset
    """The offset after the last that the map knows."""
    end: Offset
    """The offset after the last that may be cleaned."""
    now: int
    """ms."""
    delete_retention_ms: int
    producers: Mapping[ProducerId, LastRecord]
    limit: int
    """Bytes to which a compressed batch may grow, if it is to lose records."""


class Retained:
    """The decisions of one round. Takes the batches of a log in order."""

    def __init__(self, rules: Rules, transactions: CleanedTransactions) -> None:
        self.now: int | None = rules.now
        """ms, by which tombstones and markers are judged; None: they stay, and nothing is decided."""
        self._rules = rules
        self._transactions = transactions
        self.read = 0
        """Records that were looked at."""
        self.kept = 0
        self.without_key = 0
        """Records that went because they have no key."""
        self._unread = False
        """Whether a batch was met that is too large to be read."""

    def of(self, batch: BatchView) -> Bytes:
        """The batch that takes the place of ``batch``; no bytes if none does. Raises CorruptBatch."""
        may_go = self._transactions.meets(batch)
        horizon = delete_horizon(batch)
        if batch.is_control:
            all_go = may_go and horizon is not None and self.now is not None and horizon <= self.now
        else:
            all_go = may_go
        try:
            records, whole, tombstones = ([], False, False) if all_go else self._records(batch, horizon)
        except DecompressionBomb:
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
        """ms; None if none is to be set. What would get one beyond 64 bits stays for ever, as in Kafka, whose sum is
        negative then."""
        if self.now is None:
            return None
        horizon = self.now + self._rules.delete_retention_ms
        return horizon if horizon <= _LATEST else None

    def _is_needed(self, batch: BatchView) -> bool:
        """Whether ``batch`` stays even if it is empty."""
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
        """The records that stay, whether those are all, and whether there are tombstones among them."""
        records: list[KeptRecord] = []
        tombstones = False
        cursor = RecordCursor(batch, self._rules.limit)
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
