"""Who asks for an offset, and which offsets they may see (ListOffsets; docs/kafka-semantics.md: Special timestamps)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from milena.broker.replica.partition import Partition
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import Offset
from milena.storage.log.segment import TimedRecord
from milena.storage.log.unified_log import UnifiedLog

Found: TypeAlias = tuple[int, int, int]
"""(timestamp, offset, leader epoch), each -1 if nothing was found."""
NOTHING: Final = (-1, -1, -1)
_CONSUMER: Final = -1
_DEBUGGING: Final = -2


class Asker(NamedTuple):
    """The requester of one partition. ``replica`` as on the wire; ``committed``: with isolation read_committed."""

    replica: int
    committed: bool
    current_leader_epoch: int | None

    @property
    def needs_leader(self) -> bool:
        return self.replica != _DEBUGGING

    def last_fetchable(self, log: UnifiedLog) -> Offset:
        """Exclusive."""
        if self.replica != _CONSUMER:
            return log.log_end_offset
        return log.last_stable_offset if self.committed else log.high_watermark

    def finds_lagging(self, partition: Partition, log: UnifiedLog) -> bool:
        """Whether this is a new leader whose high watermark is below the start of its epoch: it does not know yet what
        is committed."""
        return (
            self.replica == _CONSUMER
            and partition.is_leader
            and partition.leader_epoch_start_offset > log.high_watermark
        )

    def shown(self, partition: Partition, log: UnifiedLog, found: Found) -> Found:
        """``found`` if this requester may see it. Raises KafkaError OFFSET_NOT_AVAILABLE if that is not known yet."""
        if found[1] < self.last_fetchable(log):
            return found
        if self.finds_lagging(partition, log):
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return NOTHING


class TimeSearch(NamedTuple):
    """One partition to be searched locally and in the tier; ``tell`` is called once."""

    partition: Partition
    timestamp: int
    asker: Asker
    tell: Callable[[Found, ErrorCode], None]


def found_record(record: TimedRecord | None) -> Found:
    if record is None:
        return NOTHING
    return record.timestamp, record.offset, -1 if record.leader_epoch is None else record.leader_epoch
