"""Produce with acks=all: waits until the appended records are committed (docs/kafka-semantics.md: High watermark and
acks, Produce)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import chain

from milena.broker.replica.partition import Partition
from milena.protocol.errors import ErrorCode
from milena.protocol.types import Offset


class Uncommitted:
    """One append that is not committed yet. ``error`` is None until the outcome is known."""

    __slots__ = ("error", "partition", "required", "term")

    def __init__(self, partition: Partition, term: int, required: Offset) -> None:
        """``required``: the high watermark at which it is committed."""
        self.partition = partition
        self.term = term
        self.required = required
        self.error: ErrorCode | None = None

    def check(self) -> bool:
        """Whether the outcome is now known."""
        if self.error is not None:
            return True
        partition = self.partition
        if partition.term != self.term or not partition.is_leader:
            self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.high_watermark >= self.required:
            enough = len(partition.maximal_isr) >= partition.effective_min_isr
            self.error = ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return self.error is not None


class CommitWait:
    """All appends of one request; ``done`` is called once, when all outcomes are known or the time is up."""

    __slots__ = ("_done", "_open")

    def __init__(self, appends: list[Uncommitted], done: Callable[[], None]) -> None:
        self._open: dict[Hashable, list[Uncommitted]] = {}
        for append in appends:
            self._open.setdefault(append.partition, []).append(append)
        self._done = done

    def ready(self, key: Hashable) -> bool:
        appends = self._open.get(key)
        if appends is not None:
            still = [append for append in appends if not append.check()]
            if still:
                self._open[key] = still
            else:
                del self._open[key]
        return not self._open

    def complete(self) -> None:
        self._done()

    def expire(self) -> None:
        """The time is up. The records stay, and may still be committed."""
        self._end(ErrorCode.REQUEST_TIMED_OUT)

    def abandon(self) -> None:
        self._end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _end(self, error: ErrorCode) -> None:
        for append in chain.from_iterable(self._open.values()):
            if not append.check():
                append.error = error
        self._done()
