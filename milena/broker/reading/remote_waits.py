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
    """Identifies a read of one partition. Equal reads of several requests are shared, except across a change of the
    leader epoch or of the leadership."""

    partition: Partition
    leader_epoch: LeaderEpoch
    term: int
    read: Hashable


class RemoteWait(Generic[R]):
    """One request that reads from the tier, as a delayed operation: ``submit`` for each read, then ``wait``.
    ``_finish`` is called once, when all reads are done, fail or expire, unless the request is abandoned."""

    def __init__(self, pool: ReaderPool, purgatory: Purgatory) -> None:
        self._pool = pool
        self._purgatory = purgatory
        self._logs: dict[Partition, UnifiedLog] = {}
        self._unfinished: dict[ReadKey, None] = {}
        self._ticket: Ticket | None = None

    def submit(
        self, partition: Partition, read: Hashable, work: Callable[[TopicIdPartition, UnifiedLog], Awaitable[R]]
    ) -> ReadKey:
        """Submit ``work``, or join the same ``read`` of another request. Returns its key. Raises KafkaError if the
        log is offline."""
        log = partition.online_log
        key = ReadKey(partition, partition.leader_epoch, partition.term, read)
        name = TopicIdPartition(partition.topic_id, partition.topic, partition.index)
        self._pool.submit(key, lambda: work(name, log), self)
        self._logs[partition] = log
        self._unfinished[key] = None
        return key

    def wait(self, seconds: float, requester: Requester) -> None:
        """Wait at most ``seconds`` for the submitted reads."""
        if self._unfinished:
            self._ticket = self._purgatory.wait(self, self._logs, seconds, requester)
        else:
            self._finish()

    def is_current(self, key: ReadKey) -> bool:
        """Whether the partition has the same leader epoch, leadership and log as when the read was submitted."""
        partition = key.partition
        return (partition.leader_epoch, partition.term) == key[1:3] and partition.log is self._logs[partition]

    def read_done(self, key: Hashable, result: R | None, error: Exception | None) -> None:
        """Called by the pool when a read is done, never within ``submit``."""
        assert isinstance(key, ReadKey)
        assert self._ticket is not None, "the pool called back within submit"
        del self._unfinished[key]
        try:
            self._on_read(key, result, error)
            if not self._unfinished:
                self._purgatory.leave(self._ticket)
                self._finish()
        except Exception as failure:
            self._purgatory.fail(self._ticket, failure)

    def ready(self, key: Hashable) -> bool:
        return not all(self.is_current(read) for read in self._unfinished if read.partition is key)

    def complete(self) -> None:
        self._end()

    def expire(self) -> None:
        self._end()

    def abandon(self) -> None:
        """Leave the shared reads: the connection is closed, or about to be."""
        for key in self._unfinished:
            self._pool.leave(key, self)

    def _end(self) -> None:
        for key in self._unfinished:
            self._pool.leave(key, self)
            self._on_unread(key)
        self._finish()

    def _on_read(self, key: ReadKey, result: R | None, error: Exception | None) -> None:
        """Store the result or the error of a read."""
        raise NotImplementedError

    def _on_unread(self, key: ReadKey) -> None:
        """Store the result for a read that did not finish in time, or whose partition has changed."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Complete the request with the stored results."""
        raise NotImplementedError


def code_of(error: Exception) -> ErrorCode:
    """The error code for the client after a failed read."""
    if isinstance(error, KafkaError):
        return error.code
    return ErrorCode.REPLICA_NOT_AVAILABLE if isinstance(error, MetadataNotReady) else ErrorCode.UNKNOWN_SERVER_ERROR
