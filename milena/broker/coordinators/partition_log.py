"""The log of a shard: a partition of a coordinator's topic that this broker leads (Kafka's ``PartitionWriter``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from milena.broker.replica.partition import ACKS_ALL, Partition
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import CorruptBatch, iter_batches
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.producer_state import NO_GUARD, VerificationGuard

PIECE_BYTES: Final = 64 << 10
"""Bytes that a loader gets at once, or one batch if that is longer."""


class CoordinatorLog(Protocol):
    """The partition that a shard writes to."""

    @property
    def end(self) -> int:
        """The offset after the last record."""
        ...

    def append(self, batch: bytes) -> int:
        """Append one batch as the leader. Returns the offset after it. Raises KafkaError if nothing was appended."""
        ...

    def when_committed(self, end: int, done: Callable[[ErrorCode], None]) -> None:
        """Call ``done`` when everything before ``end`` is committed, or when the wait for that ends."""
        ...


class PartitionLog:
    """Appends as the leader with acks=all. Refuses writes once the partition has another leader epoch."""

    def __init__(
        self, partition: Partition, leader_epoch: LeaderEpoch, *, commit_timeout_ms: int, load_bytes: int
    ) -> None:
        """``load_bytes``: how much is read at once while loading, or one batch if that is longer."""
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._commit_timeout_ms = commit_timeout_ms
        self._load_bytes = load_bytes

    def set_leader_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Continue in the next leader epoch, in which this broker is still the leader. No other leader has appended in
        between."""
        self._leader_epoch = leader_epoch

    @property
    def leads(self) -> bool:
        """Whether this broker still leads the partition in the epoch of this log."""
        return self._partition.is_leader and self._partition.leader_epoch == self._leader_epoch

    @property
    def end(self) -> int:
        """The log end offset; 0 if the log is offline."""
        log = self._partition.log
        return log.log_end_offset if log is not None else 0

    @property
    def high_watermark(self) -> int:
        """The high watermark; 0 if the log is offline."""
        log = self._partition.log
        return log.high_watermark if log is not None else 0

    @property
    def partition(self) -> Partition:
        return self._partition

    def append(self, batch: bytes, guard: VerificationGuard = NO_GUARD, transaction_version: int = 0) -> int:
        """Append one batch. Returns the offset after it. Raises KafkaError if nothing was appended.

        ``guard``: that of the verification, for the offsets of a transaction. ``transaction_version``: that of a
        marker's transaction."""
        if self._partition.leader_epoch != self._leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        appended = self._partition.append(
            memoryview(bytearray(batch)),
            ACKS_ALL,
            origin=Origin.COORDINATOR,
            guard=guard,
            transaction_version=transaction_version,
        )
        return appended.last_offset + 1

    def when_committed(self, end: int, done: Callable[[ErrorCode], None]) -> None:
        """Call ``done`` when the high watermark reaches ``end`` (NONE), when this leadership ends, or after the commit
        timeout (with an error). It may be called within this call."""
        partition = self._partition
        if partition.leader_epoch != self._leader_epoch:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return

        def committed(reached: bool) -> None:
            done(ErrorCode.NONE if reached else self._commit_error())

        partition.on_high_watermark(Offset(end), committed, seconds=self._commit_timeout_ms / 1000)

    def _commit_error(self) -> ErrorCode:
        return ErrorCode.REQUEST_TIMED_OUT if self.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def pieces(self) -> Iterator[memoryview]:
        """Yield whole batches from the log start to the log end at the first call. They are read when the iterator is
        advanced, and stay valid if the log is closed or moved. Raises KafkaError, and CorruptBatch for a batch that is
        longer than the rest of its segment."""
        log = self._partition.online_log
        end, offset = log.log_end_offset, log.log_start_offset
        while offset < end:
            log = self._partition.online_log  # again: it may have been moved to another directory
            offset = max(offset, log.log_start_offset)
            data = log.read_bytes(offset, self._load_bytes, upper=end, min_one=True)
            if not data:
                return  # compaction has removed the last records
            start = position = 0
            for batch in iter_batches(data):
                size = batch.size_in_bytes
                if start < position and position + size - start > PIECE_BYTES:
                    yield data[start:position]
                    start = position
                position += size
                offset = batch.next_offset
            if not position:
                raise CorruptBatch(f"the batch at offset {offset} is longer than the rest of its segment")
            yield data[start:position]
