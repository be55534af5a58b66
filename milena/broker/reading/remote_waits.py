"""Requests that wait in the purgatory for reads of the remote tier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from milena.broker.replica.partition import Partition
from milena.broker.waiting.purgatory import Purgatory, Requester, Ticket
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import LeaderEpoch
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_manager import MetadataNotReady
from milena.tiered.reading.reader_pool import ReaderPool
from milena.tiered.segments.segment_metadata import TopicIdPartition

R = TypeVar("R")


class ReadKey(NamedTuple):
    """One read. It is another key after the partition's role has changed."""

    partition: Partition
    leader_epoch: LeaderEpoch
    term: int
    what: Hashable


class RemoteWait(Generic[R]):
    """One request. Its reads are submitted, then ``begin`` is called, then ``_finish`` once, unless the request is
    abandoned."""

    def __init__(self, pool: ReaderPool, purgatory: Purgatory) -> None:
        self._pool = pool
        self._purgatory = purgatory
        self._logs: dict[Partition, UnifiedLog] = {}
        self._open: dict[ReadKey, None] = {}
        self._ticket: Ticket | None = None

    def submit(
        self, partition: Partition, what: Hashable, work: Callable[[TopicIdPartition, UnifiedLog], Awaitable[R]]
    ) -> ReadKey:
        """Submit ``work``; other requests for the same ``what`` share it. Raises KafkaError."""
        log = partition.online_log
        key = ReadKey(partition, partition.leader_epoch, partition.term, what)
        name = TopicIdPartition(partition.topic_id, partition.topic, partition.index)
        self._pool.submit(key, lambda: work(name, log), self)
        self._logs[partition] = log
        self._open[key] = None
        return key

    def begin(self, seconds: float, requester: Requester) -> None:
        """Wait for the submitted reads."""
        if self._open:
            self._ticket = self._purgatory.wait(self, self._logs, seconds, requester)
        else:
            self._finish()

    def holds(self, key: ReadKey) -> bool:
        """Whether the partition is unchanged since the read began."""
        partition = key.partition
        return (partition.leader_epoch, partition.term) == key[1:3] and partition.log is self._logs[partition]

    def read_done(self, key: Hashable, result: R | None, error: Exception | None) -> None:
        assert isinstance(key, ReadKey)
        assert self._ticket is not None, "a read is never done at once"
        del self._open[key]
        try:
            self._take(key, result, error)
            if not self._open:
                self._purgatory.leave(self._ticket)
                self._finish()
        except Exception as failure:
            self._purgatory.fail(self._ticket, failure)

    def ready(self, key: Hashable) -> bool:
        return not all(self.holds(read) for read in self._open if read.partition is key)

    def complete(self) -> None:
        self._end()

    def expire(self) -> None:
        self._end()

    def abandon(self) -> None:
        """The connection is closed, or about to be."""
        for key in self._open:
            self._pool.leave(key, self)

    def _end(self) -> None:
        for key in self._open:
            self._pool.leave(key, self)
            self._give_up(key)
        self._finish()

    def _take(self, key: ReadKey, result: R | None, error: Exception | None) -> None:
        """Keep the result of a read."""
        raise NotImplementedError

    def _give_up(self, key: ReadKey) -> None:
        """This was not read in time, or may no longer be read here."""
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError


def code_of(error: Exception) -> ErrorCode:
    """The error code for the client."""
    if isinstance(error, KafkaError):
        return error.code
    return ErrorCode.REPLICA_NOT_AVAILABLE if isinstance(error, MetadataNotReady) else ErrorCode.UNKNOWN_SERVER_ERROR
