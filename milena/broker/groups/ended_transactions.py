"""Transactions whose markers were appended to one ``__consumer_offsets`` partition, and whose offsets are applied to
their groups in steps, so that a transaction with very many offsets does not hold the event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from milena.broker.groups.model import CommittedOffset
from milena.broker.groups.transactional_offsets import TransactionalOffsets
from milena.protocol.types import ProducerId, TopicPartition

OFFSETS_PER_STEP: Final = 1_000
"""Offsets of a transaction that are applied before other tasks run: 0.4 ms."""


class EndedTransaction:
    """A transaction with its marker, and its offsets that are not applied yet."""

    __slots__ = ("_commit", "_groups", "_producer_id")

    def __init__(self, producer_id: ProducerId, *, commit: bool, transactional: TransactionalOffsets) -> None:
        self._producer_id = producer_id
        self._commit = commit
        self._groups = transactional.take(producer_id)

    @property
    def is_applied(self) -> bool:
        return not self._groups

    def step(self, transactional: TransactionalOffsets, apply: Apply) -> int:
        """Apply up to ``OFFSETS_PER_STEP`` offsets. Returns how many."""
        left = OFFSETS_PER_STEP
        while self._groups and left > 0:
            group_id, partitions = self._groups.popitem()
            count = min(left, len(partitions))
            left -= count
            chunk = [partitions.popitem()[0] for _ in range(count)]
            if partitions:
                self._groups[group_id] = partitions
            apply(group_id, transactional.apply(self._producer_id, group_id, chunk, commit=self._commit))
        return OFFSETS_PER_STEP - left

    def apply_all(self, transactional: TransactionalOffsets, group_id: str, apply: Apply) -> None:
        """Apply all offsets of a group."""
        partitions = self._groups.pop(group_id, None)
        if partitions is not None:
            apply(group_id, transactional.apply(self._producer_id, group_id, partitions, commit=self._commit))


Apply = Callable[[str, Mapping[TopicPartition, CommittedOffset]], None]
"""Changes offsets of a group; gets none if the transaction was aborted."""
