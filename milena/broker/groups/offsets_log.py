"""The log of a shard: a partition of ``__consumer_offsets`` that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from milena.broker.replica.partition import ACKS_ALL, Partition
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import iter_batches
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.append_info import Origin

LOAD_PIECE: Final = 64 << 10
"""Bytes per read while loading, or one batch if that is longer; other tasks run in between."""


class PartitionOffsetsLog:
    """Appends as the leader with acks=all, only in the leader epochs of this leadership."""

    def __init__(self, partition: Partition, leader_epoch: LeaderEpoch, commit_timeout_ms: int) -> None:
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._commit_timeout_ms = commit_timeout_ms

    def go_on(self, leader_epoch: LeaderEpoch) -> None:
        """This broker stays leader in a new epoch. No other broker has led in between, so the log has no records of
        others."""
        self._leader_epoch = leader_epoch

    @property
    def leads(self) -> bool:
        """Whether this broker still leads the partition in the epoch of this log."""
        return self._partition.is_leader and self._partition.leader_epoch == self._leader_epoch

    @property
    def end(self) -> int:
        log = self._partition.log
        return log.log_end_offset if log is not None else 0

    @property
    def high_watermark(self) -> int:
        log = self._partition.log
        return log.high_watermark if log is not None else 0

    def append(self, batch: bytes) -> int:
        """Returns the offset after the batch. Raises KafkaError if nothing was appended."""
        if self._partition.leader_epoch != self._leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._partition.append(memoryview(bytearray(batch)), ACKS_ALL, origin=Origin.COORDINATOR).last_offset + 1

    def when_committed(self, end: int, done: Callable[[ErrorCode], None]) -> None:
        """Call ``done`` when the high watermark reaches ``end``, when this leadership ends, or when the time limit is
        over."""
        partition = self._partition
        if partition.leader_epoch != self._leader_epoch:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return

        def committed(reached: bool) -> None:
            done(ErrorCode.NONE if reached else self._missed())

        partition.on_high_watermark(Offset(end), committed, seconds=self._commit_timeout_ms / 1000)

    def _missed(self) -> ErrorCode:
        return ErrorCode.REQUEST_TIMED_OUT if self.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def pieces(self) -> Iterator[memoryview]:
        """Whole batches from the log start to the log end of now. Each piece is read when it is asked for, and may
        outlive the log. Raises KafkaError."""
        log = self._partition.online_log
        end, offset = log.log_end_offset, log.log_start_offset
        while offset < end:
            log = self._partition.online_log  # it may have been moved to another directory meanwhile
            offset = max(offset, log.log_start_offset)
            piece = log.read_bytes(offset, LOAD_PIECE, upper=end, min_one=True)
            if not piece:
                return  # compaction has removed the last records
            for batch in iter_batches(piece):
                offset = batch.next_offset
            yield piece
