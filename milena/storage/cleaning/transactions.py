"""The state of transactions during a cleaning, like Kafka's ``CleanedTransactionMetadata``."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop

from milena.protocol.records.batch import BatchView
from milena.protocol.types import Offset
from milena.storage.files.end_marker import read_end_marker
from milena.storage.files.txn_index import AbortedTxn


class _Aborted:
    """An aborted transaction between its first offset and its marker."""

    __slots__ = ("met", "transaction")

    def __init__(self, transaction: AbortedTxn) -> None:
        self.transaction = transaction
        self.met = False
        """Whether the log still has data batches of it."""


class CleanedTransactions:
    """Decides which transactional batches are removed. Takes the batches of a log in order."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """``aborted``: the aborted transactions with records in the range that is cleaned."""
        self._coming = [(transaction.first_offset, transaction) for transaction in aborted]
        heapify(self._coming)
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        """Producers with a batch so far whose transaction is not aborted."""
        self.kept: list[AbortedTxn] = []
        """Aborted transactions whose markers are kept, since the log still has batches of them. The owner moves them to
        the new transaction index."""

    def meets(self, batch: BatchView) -> bool:
        """Return whether ``batch`` may be removed: it has data of an aborted transaction, or the marker of a
        transaction without other batches in the log. Raises CorruptBatch."""
        self._begin_up_to(batch.last_offset)
        if batch.is_control:
            return self._meets_marker(batch)
        if not batch.is_transactional:
            return False
        aborted = self._aborted.get(batch.producer_id)
        if aborted is None:
            self._committed.add(batch.producer_id)
            return False
        aborted.met = True
        return True

    def _begin_up_to(self, offset: Offset) -> None:
        while self._coming and self._coming[0][0] <= offset:
            transaction = heappop(self._coming)[1]
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))

    def _meets_marker(self, batch: BatchView) -> bool:
        if not batch.count:
            return True  # it was cleaned before
        marker = read_end_marker(batch)
        if marker is None:
            return False
        if not marker.aborted:
            if batch.producer_id in self._committed:
                self._committed.discard(batch.producer_id)
                return False
            return True
        aborted = self._aborted.pop(batch.producer_id, None)
        if aborted is not None and aborted.met:
            self.kept.append(aborted.transaction)
            return False
        return True
