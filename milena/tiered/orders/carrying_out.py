"""Carrying out a work order, segment by segment and group by group: plain functions for whoever has the batches.

First each source is **scanned**: which records have a key and count, and what the next sources must know of it. Whoever
carries out the order finds the last offset of each key from that, with whatever means it has. Then each group is
**written**, by the brokers' own code, which asks for those offsets in the order of the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from milena.protocol.records.batch import NO_LEADER_EPOCH, BatchView
from milena.protocol.records.compression import DecompressionBomb
from milena.protocol.records.crc import crc32c
from milena.protocol.records.record_cursor import RecordCursor
from milena.protocol.types import ProducerId
from milena.runtime.disk import Bytes, Disk, File
from milena.storage.cleaning.retained import LastRecord, Retained, Rules
from milena.storage.cleaning.rewriting import Rewriting, has_changed
from milena.storage.cleaning.transactions import CleanedTransactions
from milena.storage.files.end_marker import read_end_marker
from milena.storage.files.txn_index import AbortedTxn
from milena.tiered.cleaning.window import Source
from milena.tiered.orders.keys import WINNER, key_hash
from milena.tiered.orders.order import Order, OrderedGroup

WRITE_AT = 1 << 20


class CannotBeCarriedOut(ValueError):
    """The order is left to the leader; the text says why."""


class Before(NamedTuple):
    """What a log has before some offset: the producers with batches of a transaction that ends later, and the leader
    epoch of the last batch (-1: there is none)."""

    open: frozenset[int] = frozenset()
    epoch: int = NO_LEADER_EPOCH

    def then(self, scanned: Scanned) -> Before:
        """Behind what was scanned."""
        epoch = self.epoch if scanned.epoch == NO_LEADER_EPOCH else scanned.epoch
        return Before((self.open - scanned.ended) | scanned.open, epoch)


class Scanned(NamedTuple):
    """Of a source: the producers whose transactions end in it, those that have batches behind that, and the leader
    epoch of its last batch."""

    ended: frozenset[int]
    open: frozenset[int]
    epoch: int


class Scan:
    """Takes the batches of one source in order."""

    def __init__(self, order: Order, source: Source, aborted: Sequence[AbortedTxn]) -> None:
        """``aborted``: all in the order's window."""
        self._order = order
        # The markers of those that ended before are not met here.
        here = [one for one in aborted if one.first_offset <= source.last and one.last_offset >= source.first]
        self._transactions = CleanedTransactions(here)
        self._ended: set[int] = set()
        self._open: set[int] = set()
        self._epoch: int = NO_LEADER_EPOCH

    @property
    def scanned(self) -> Scanned:
        return Scanned(frozenset(self._ended), frozenset(self._open), self._epoch)

    def of(self, batch: BatchView) -> Iterator[tuple[int, bytes]]:
        """Offset and hash of the key of each record that counts. Raises CorruptBatch, CannotBeCarriedOut."""
        self._epoch = batch.leader_epoch
        gone = self._transactions.meets(batch)
        if batch.is_control:
            if batch.count and read_end_marker(batch) is not None:
                self._ended.add(batch.producer_id)
                self._open.discard(batch.producer_id)
            return
        if batch.is_transactional:
            self._open.add(batch.producer_id)
        if gone:
            return
        cursor = RecordCursor(batch, self._order.limit)
        try:
            while cursor.advance():
                key = cursor.key
                if key is not None:
                    yield batch.base_offset + int(cursor.offset_delta), key_hash(key, self._order.secret)
        except DecompressionBomb:
            raise CannotBeCarriedOut(
                f"the batch at {batch.base_offset} has more than {self._order.limit} bytes of records"
            ) from None


class GivenWinners:
    """The winners of a group, which were found before: (offset, winner) of each record that counts, in order. Writes
    them to a file. Raises ValueError if they are not those of the records."""

    def __init__(self, given: Iterator[tuple[int, int]], written: Written) -> None:
        self._given = given
        self._written = written

    def latest(self, key: bytes, offset: int) -> int:
        found = next(self._given, None)
        if found is None or found[0] != offset:
            raise ValueError(f"the record at {offset} with a key of {len(key)} bytes was not scanned")
        self._written.add(WINNER.pack(found[1]))
        return found[1]

    def finish(self) -> None:
        left = next(self._given, None)
        if left is not None:
            raise ValueError(f"the record at {left[0]} was scanned, and is not there")


class Written:
    """A new file, and its CRC-32C so far. Raises OSError."""

    def __init__(self, disk: Disk, path: str) -> None:
        disk.remove(path)
        self._file: File = disk.open(path, create=True)
        self._unwritten = bytearray()
        self.crc = 0
        self.size = 0

    def add(self, data: Bytes) -> None:
        self._unwritten += data
        self.size += len(data)
        if len(self._unwritten) >= WRITE_AT:
            self._write()

    def close(self) -> None:
        self._write()
        self._file.close()

    def _write(self) -> None:
        if self._unwritten:
            self.crc = crc32c(self._unwritten, self.crc)
            self._file.append((self._unwritten,))
            self._unwritten = bytearray()


class WrittenGroup(NamedTuple):
    """``log``: None if nothing has changed. Sizes and checksums of the files."""

    log: tuple[int, int] | None
    winners: tuple[int, int]


class GroupWriter:
    """Writes what an order wants of one of its groups."""

    def __init__(
        self,
        order: Order,
        producers: Mapping[ProducerId, LastRecord],
        aborted: Sequence[AbortedTxn],
    ) -> None:
        """``producers``: at the order's end; ``aborted``: all in its window."""
        self._order = order
        self._producers = producers
        self._aborted = aborted

    def write(
        self,
        group: OrderedGroup,
        before: Before,
        batches: Iterable[BatchView],
        winners: Iterator[tuple[int, int]],
        log: Written,
        told: Written,
    ) -> WrittenGroup:
        """``winners``: (offset, winner) of each record that counts, in order. They are written to ``told``, and the
        cleaned batches to ``log``. Raises CorruptBatch, OSError, ValueError if the winners are of other records."""
        order, given = self._order, GivenWinners(winners, told)
        overlapping = [
            one for one in self._aborted if one.first_offset <= group.last and one.last_offset >= group.first
        ]
        transactions = CleanedTransactions(overlapping, start=group.first, met=before.open)
        rules = Rules(given, order.end, order.end, 0, order.delete_retention_ms, self._producers, order.limit)
        retained = Retained(rules, transactions)
        retained.now = group.deletes_at
        rewriting = Rewriting(retained, before.epoch)
        changed = False
        for batch in batches:
            data = rewriting.of(batch)
            if len(data):
                log.add(data)
            changed = has_changed(batch, data) or changed
        given.finish()
        log.close()
        told.close()
        return WrittenGroup((log.size, log.crc) if changed else None, (told.size, told.crc))
