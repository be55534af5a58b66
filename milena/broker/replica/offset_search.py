"""Which offsets ListOffsets may return to which requester (docs/kafka-semantics.md: Special timestamps)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from milena.broker.replica.partition import Partition
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import Offset
from milena.storage.log.segment import TimedRecord
from milena.storage.log.unified_log import UnifiedLog

FoundOffset: TypeAlias = tuple[int, int, int]
"""(timestamp, offset, leader epoch), each -1 if nothing was found."""
NOT_FOUND: Final = (-1, -1, -1)
_CONSUMER: Final = -1
"""The replica id in a consumer's request."""
_DEBUGGING: Final = -2
"""The replica id of a debugging consumer, which may ask any replica."""


class OffsetRequester(NamedTuple):
    """The sender of a ListOffsets request for one partition. ``replica``: the replica id on the wire;
    ``read_committed``: the isolation level."""

    replica: int
    read_committed: bool
    current_leader_epoch: int | None

    @property
    def needs_leader(self) -> bool:
        """Whether only the leader may answer."""
        return self.replica != _DEBUGGING

    def last_fetchable(self, log: UnifiedLog) -> Offset:
        """The offset below which the requester may see records."""
        if self.replica != _CONSUMER:
            return log.log_end_offset
        return log.last_stable_offset if self.read_committed else log.high_watermark

    def is_high_watermark_lagging(self, partition: Partition, log: UnifiedLog) -> bool:
        """Whether a consumer asks a new leader whose high watermark is below the start of its epoch. Such a leader does
        not know yet which records are committed (KIP-207)."""
        return (
            self.replica == _CONSUMER
            and partition.is_leader
            and partition.leader_epoch_start_offset > log.high_watermark
        )

    def visible(self, partition: Partition, log: UnifiedLog, offset_found: FoundOffset) -> FoundOffset:
        """``offset_found`` if this requester may see it, else NOT_FOUND. Raises KafkaError OFFSET_NOT_AVAILABLE if that
        is not known yet."""
        if offset_found[1] < self.last_fetchable(log):
            return offset_found
        if self.is_high_watermark_lagging(partition, log):
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return NOT_FOUND


class TimeSearch(NamedTuple):
    """A search for the first record of a timestamp (ms) or later in one partition, locally and in the tier. ``done`` is
    called once."""

    partition: Partition
    timestamp: int
    requester: OffsetRequester
    done: Callable[[FoundOffset, ErrorCode], None]


def found_offset(record: TimedRecord | None) -> FoundOffset:
    if record is None:
        return NOT_FOUND
    return record.timestamp, record.offset, -1 if record.leader_epoch is None else record.leader_epoch
