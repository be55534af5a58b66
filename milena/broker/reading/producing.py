"""Waits until the records of a Produce request with acks=all are committed, like Kafka's DelayedProduce
(docs/kafka-semantics.md: High watermark and acks, Produce)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import chain

from milena.broker.replica.partition import Partition
from milena.protocol.errors import ErrorCode
from milena.protocol.types import Offset


class PendingAppend:
    """One append that is not committed yet. ``error`` is None until the result is known."""

    __slots__ = ("error", "partition", "required", "term")

    def __init__(self, partition: Partition, term: int, required: Offset) -> None:
        """``term``: ``Partition.term`` at the append. ``required``: the high watermark at which it is committed."""
        self.partition = partition
        self.term = term
        self.required = required
        self.error: ErrorCode | None = None

    def check(self) -> bool:
        """Set ``error`` if the result is known now. Returns whether it is."""
        if self.error is not None:
            return True
        partition = self.partition
        if partition.term != self.term or not partition.is_leader:
            self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.high_watermark >= self.required:
            # The ISR may have shrunk since the append, which checked it (KIP-497: the maximal ISR counts).
            enough = len(partition.maximal_isr) >= partition.effective_min_isr
            self.error = ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return self.error is not None


class CommitWait:
    """The pending appends of one request. ``done`` is called once, when all results are known or the wait ends."""

    __slots__ = ("_done", "_pending")

    def __init__(self, appends: list[PendingAppend], done: Callable[[], None]) -> None:
        self._pending: dict[Hashable, list[PendingAppend]] = {}
        for append in appends:
            self._pending.setdefault(append.partition, []).append(append)
        self._done = done

    def ready(self, key: Hashable) -> bool:
        appends = self._pending.get(key)
        if appends is not None:
            pending = [append for append in appends if not append.check()]
            if pending:
                self._pending[key] = pending
            else:
                del self._pending[key]
        return not self._pending

    def complete(self) -> None:
        self._done()

    def expire(self) -> None:
        """Answer with REQUEST_TIMED_OUT. The records stay in the log, and may be committed later."""
        self._complete_pending(ErrorCode.REQUEST_TIMED_OUT)

    def abandon(self) -> None:
        self._complete_pending(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _complete_pending(self, error: ErrorCode) -> None:
        for append in chain.from_iterable(self._pending.values()):
            if not append.check():
                append.error = error
        self._done()
