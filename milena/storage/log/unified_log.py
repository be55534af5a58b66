"""The log of one partition: append, read, truncate, like Kafka's ``UnifiedLog``.

A log has one owner, which calls it on the loop; opening it, and the ``run`` of a flush, may happen in a worker. Errors
of the disk take the whole directory offline and are raised as KafkaError KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from uuid import UUID

from milena.config.topic_config import TopicConfig
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.files.checkpoints import encode_partition_metadata
from milena.storage.files.names import PARTITION_METADATA
from milena.storage.files.txn_index import AbortedTxn
from milena.storage.log import log_append, log_search, retention, truncation
from milena.storage.log.append_info import AppendInfo, Origin
from milena.storage.log.guard import guarded
from milena.storage.log.local_log import LocalLog
from milena.storage.log.log_append import AppendCheck, Begun
from milena.storage.log.log_read import LogSlice, aborted_between, find_slice
from milena.storage.log.log_search import TimedRecord
from milena.storage.log.log_state import may_be_tiered


class UnifiedLog(LocalLog):
    """Created by ``storage.log.loading``."""

    __slots__ = ()

    @property
    def last_stable_offset(self) -> Offset:
        """The high watermark, or the first offset of an undecided transaction if that is lower."""
        unstable = self.producers.first_unstable
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def update_config(self, config: TopicConfig) -> None:
        self.config = config
        self.remote_enabled = may_be_tiered(self.context, self.topic, config)

    @guarded
    def assign_topic_id(self, topic_id: UUID) -> None:
        """Write the topic id that ``partition.metadata`` lacked. Raises KafkaError."""
        path = f"{self.folder}/{PARTITION_METADATA}"
        self.context.disk.write_atomic(path, encode_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id
        self.id_is_synced = False
        self.must_sync(path)

    # Writing

    @guarded
    def append_as_leader(
        self, records: memoryview, *, leader_epoch: LeaderEpoch, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        """Check ``records``, assign offsets and ``leader_epoch`` in place, and write them: one batch, or any number
        from RAFT. Raises KafkaError with Kafka's code (InvalidRecords if single records are at fault), and writes
        nothing in that case."""
        if origin is Origin.RAFT:
            return log_append.append_raft(self, records, leader_epoch)
        return log_append.append_one(self, records, origin, leader_epoch)

    @guarded
    def append_or_check(self, records: memoryview, origin: Origin, leader_epoch: LeaderEpoch) -> Begun:
        """Append one batch if its check is little work; else return the check, for ``append_checked`` once it is
        finished."""
        return log_append.append_or_check(self, records, origin, leader_epoch)

    @guarded
    def append_checked(self, check: AppendCheck, *, leader_epoch: LeaderEpoch) -> AppendInfo:
        """Write the batch of ``check``, which is finished and was made for this log and ``config``. Raises
        KafkaError."""
        return log_append.append_checked(self, check, leader_epoch)

    @guarded
    def append_as_follower(self, records: memoryview, *, leader_epoch: LeaderEpoch | None = None) -> AppendInfo:
        """Write the leader's batches unchanged; a partial batch at the end is left out.

        ``leader_epoch``: the epoch that this follower knows; batches of a later epoch are left out. Raises KafkaError.
        """
        return log_append.append_fetched(self, records, leader_epoch)

    @guarded
    def take_epochs(self, other: UnifiedLog) -> None:
        """This log is a copy of ``other``: take its epochs, since those without records are known only there
        (KAFKA-15608). Raises KafkaError."""
        self.epochs.clear()
        for epoch, start in other.epochs.entries:
            self.epochs.assign(epoch, start)
        self.save_epochs()

    # Reading

    @guarded
    def read(self, offset: Offset, max_bytes: int, *, upper: Offset, min_one: bool) -> LogSlice:
        """The bytes from the batch that holds ``offset`` on, within one segment and before ``upper``.

        If the first batch is larger than ``max_bytes``, it is returned whole with ``min_one`` and not at all without.
        Raises KafkaError OFFSET_OUT_OF_RANGE for offsets before the log start or after the log end, CORRUPT_MESSAGE,
        KAFKA_STORAGE_ERROR.
        """
        return find_slice(self, offset, max_bytes, upper, min_one)

    @guarded
    def read_bytes(self, offset: Offset, max_bytes: int, *, upper: Offset, min_one: bool) -> memoryview:
        """The bytes of the slice that ``read`` finds."""
        return find_slice(self, offset, max_bytes, upper, min_one).read()

    @guarded
    def offset_for_timestamp(self, timestamp: int) -> TimedRecord | None:
        """The first record at ``timestamp`` (ms) or later. Raises KafkaError."""
        return log_search.first_at_or_after(self, timestamp, self.local_log_start_offset)

    @guarded
    def max_timestamp_offset(self) -> TimedRecord | None:
        """The first record with the largest timestamp. Raises KafkaError."""
        return log_search.of_largest_timestamp(self)

    @guarded
    def aborted_transactions(self, start: Offset, upper: Offset) -> list[AbortedTxn]:
        """The aborted transactions with records in ``[start, upper)``. Raises KafkaError."""
        return aborted_between(self, start, upper)

    def leader_epoch_end_offset(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch | None, Offset | None]:
        """Where ``epoch``, or the next smaller one known, ends (docs/kafka-semantics.md: End offset for a leader
        epoch); both None if unknown."""
        return self.epochs.end_offset_for(epoch, log_end=self.log_end_offset) or (None, None)

    # Cutting

    @guarded
    def increment_log_start(self, offset: Offset) -> bool:
        """Move the log start up to ``offset``; False if it is already there.

        Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark.
        """
        return truncation.increment_start(self, offset)

    @guarded
    def truncate_to(self, offset: Offset) -> bool:
        """Remove the records from ``offset`` on, with the epochs that began there; False if there were none.

        Raises KafkaError.
        """
        return truncation.truncate_to(self, offset)

    @guarded
    def truncate_fully_and_start_at(self, offset: Offset, *, log_start: Offset | None = None) -> None:
        """Remove everything; the next record gets ``offset``. ``log_start``: a start in the tier. Raises KafkaError."""
        truncation.start_over(self, offset, log_start)

    @guarded
    def delete_old_segments(self, now: int) -> int:
        """Delete the segments that retention allows to delete at ``now`` (ms); returns their number. Raises
        KafkaError."""
        return retention.delete_old_segments(self, now)
