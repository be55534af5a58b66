"""The transactional ids of a shard by state, so that counts and open ids are known without reading all ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from milena.broker.transactions.model import PREPARED, Transaction
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.records.transaction_records import TransactionState

IDS_PER_YIELD = 1_000
"""Loaded ids that are counted before other tasks run."""


class Census:
    """The numbers of ids by state, and the ids whose transaction has not ended."""

    __slots__ = ("counts", "open", "prepared")

    def __init__(self) -> None:
        self.counts: Counter[TransactionState] = Counter()
        self.open: dict[str, None] = {}
        """The ids with an open transaction, which may time out, oldest first."""
        self.prepared: dict[str, None] = {}
        """The ids whose markers are being written, oldest first."""

    def changed(self, transactional_id: str, before: Transaction | None, after: Transaction | None) -> None:
        """An id has another state. ``before`` is None for a new one, ``after`` for a removed one."""
        if before is not None:
            self.counts[before.state] -= 1
        state = None if after is None else after.state
        if state is not None:
            self.counts[state] += 1
        if state is TransactionState.ONGOING:
            self.open[transactional_id] = None
        else:
            self.open.pop(transactional_id, None)
        if state in PREPARED:
            self.prepared[transactional_id] = None
        else:
            self.prepared.pop(transactional_id, None)

    def add_older(self, ids: Iterable[tuple[str, TransactionState]]) -> None:
        """Add ids whose transaction has not ended, oldest first, before those that are known. They are counted."""
        older: tuple[dict[str, None], dict[str, None]] = ({}, {})
        for transactional_id, state in ids:
            older[state in PREPARED][transactional_id] = None
        self.open = {**older[False], **self.open}
        self.prepared = {**older[True], **self.prepared}

    def clear(self) -> None:
        self.counts.clear()
        self.open.clear()
        self.prepared.clear()


def counted(transactions: Mapping[str, Transaction]) -> Cooperative[Counter[TransactionState]]:
    """Count loaded ids by state. The mapping must not change in between."""
    counts: Counter[TransactionState] = Counter()
    budget = YieldBudget(IDS_PER_YIELD)
    for transaction in transactions.values():
        counts[transaction.state] += 1
        if budget.spend(1):
            yield
    return counts
