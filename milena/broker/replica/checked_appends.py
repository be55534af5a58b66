"""Checks and appends the batches of a Produce request in order: a small request within the call, a large one as
cooperative work.

A batch may expand to any size when it is decompressed, and a request may contain many batches. Before the first yield
the remaining records are copied, because the receive buffer is reused. Batches are appended in the order of the
request. A batch whose check yielded is appended if this broker still leads the partition and the topic's configuration
is the same, else it is checked again; producer states are checked with the append.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from milena.broker.replica.partition import Partition
from milena.protocol.cooperative import Cooperative
from milena.protocol.records.batch import HEADER_SIZE, BatchView, Codec, CorruptBatch
from milena.protocol.records.decompression import memory_needed
from milena.protocol.records.record_scan import STEP, work_of
from milena.protocol.records.validation import LogValidator
from milena.storage.log.unified_log import AppendInfo
from milena.storage.state.producer_state import NO_GUARD, VerificationGuard

RECORDS_BEFORE_FIRST_YIELD: Final = 4 * STEP
"""Records (or equivalent work) of one request that are checked when it arrives."""
RECORDS_PER_YIELD: Final = 2 * STEP
"""The same between two yields: about a millisecond in the pure build."""
_USUAL_RATIO: Final = 16
"""An assumed compression ratio; few batches have a higher one."""
_INT32: Final = Struct(">i")
_COUNT_POSITION: Final = 57
"""The position of the record count in a batch."""
_CODEC_POSITION: Final = 22
"""The position of the attributes' low byte, which has the codec."""
_CODEC_MASK: Final = 0x07
_BATCH_COST: Final = 50
"""The fixed cost of a batch, in records."""


AppendTarget: TypeAlias = "tuple[str | None, UUID | None, int, memoryview | None]"
"""A topic by name or id, a partition, and its records as in the request."""


class MemoryNeeds(Protocol):
    """The request, which reserves memory for its work (``Scheduler.slot``)."""

    memory: int
    """Bytes that decompression may need."""


class CheckedAppends:
    """The appends of one request. ``append`` is called for each of ``targets`` in order."""

    __slots__ = ("_acks", "_are_copied", "_budget", "_copied_position", "_memory", "_targets", "guards")

    def __init__(self, targets: list[AppendTarget], acks: int, memory: MemoryNeeds, *, copied: bool) -> None:
        """``copied``: the records are not in the receive buffer. Otherwise copies replace them before the first yield,
        and ``memory`` is set to the bytes that decompressing one of them may need."""
        self._targets = targets
        self._acks = acks
        self._memory = memory
        self._budget = RECORDS_BEFORE_FIRST_YIELD
        self._are_copied = copied
        self.guards: dict[int, VerificationGuard] | None = None
        """By position, for the first batches of a transaction in their partitions."""
        self._copied_position = -1
        """The position in ``targets`` whose records were copied before their check; -1 for none."""

    def append(
        self, position: int, partition: Partition, find: Callable[[AppendTarget], Partition]
    ) -> AppendInfo | Cooperative[AppendInfo]:
        """Check ``targets[position]`` and append it to ``partition``. If the budget does not suffice, return the
        remaining work, which appends to the partition that ``find`` returns after each yield. Both raise KafkaError,
        and append nothing in that case."""
        records = self._targets[position][3]
        assert records is not None
        check = None
        self._budget -= _minimal_work(records)
        # A batch that exceeds the budget is not begun here: its check would start again after the copy.
        if self._budget >= 0:
            if not self._are_copied and _estimated_work(records) > self._budget:
                records = self._copy(position, records)
            started = partition.begin_append(records, self._acks, guard=self._guard(position))
            if isinstance(started, AppendInfo):
                return started
            check = started
        return self._check_and_append(position, partition, find, check)

    def _check_and_append(
        self, position: int, partition: Partition, find: Callable[[AppendTarget], Partition], check: LogValidator | None
    ) -> Cooperative[AppendInfo]:
        """Finish ``check``, then append. ``check`` is None if it was not started, for lack of budget."""
        if check is None:
            self._before_yield(position)
            yield
            partition = find(self._targets[position])
        while True:
            if check is None:
                records = self._targets[position][3]
                assert records is not None
                started = partition.begin_append(records, self._acks, guard=self._guard(position))
                if isinstance(started, AppendInfo):
                    return started
                check = started
            finished = yield from self._finish(check, position)
            if not self._are_copied:  # no yield: partition and configuration cannot have changed
                return partition.append_validated(check, self._acks, self._guard(position))
            previous, partition = partition, find(self._targets[position])
            if finished and previous is partition and _is_as_checked(partition, check):
                return partition.append_validated(check, self._acks, self._guard(position))
            check = None

    def _finish(self, check: LogValidator, position: int) -> Cooperative[bool]:
        """Run ``check``. Returns False if it must start again: it read the receive buffer, which is reused after the
        first yield."""
        while (work := check.advance()) is not None:
            self._budget -= work
            if self._budget < 0:
                on_copy = self._are_copied or self._copied_position == position
                self._before_yield(position)
                yield
                if not on_copy:
                    return False
        return True

    def _guard(self, position: int) -> VerificationGuard:
        return NO_GUARD if self.guards is None else self.guards.get(position, NO_GUARD)

    def copy_all(self) -> None:
        """Copy the records of all targets, because the request waits before its first append."""
        if not self._are_copied:
            for position in range(len(self._targets)):
                records = self._targets[position][3]
                if records is not None:
                    self._copy(position, records)
            self._are_copied = True

    def _before_yield(self, position: int) -> None:
        """Refill the budget. Before the first yield, copy the records from ``position`` on."""
        self._budget = RECORDS_PER_YIELD
        if self._are_copied:
            return
        self._are_copied = True
        memory = 1
        for other in range(position, len(self._targets)):
            records = self._targets[other][3]
            if records is not None:
                if other != self._copied_position:
                    records = self._copy(other, records)
                memory = max(memory, _memory_for(records))
        self._memory.memory = memory

    def _copy(self, position: int, records: memoryview) -> memoryview:
        name, topic_id, index, _ = self._targets[position]
        records = memoryview(bytearray(records))
        self._targets[position] = (name, topic_id, index, records)
        self._copied_position = position
        return records


def _is_as_checked(partition: Partition, check: LogValidator) -> bool:
    """Whether the topic has the configuration with which ``check`` was made."""
    return partition.log is not None and partition.log.config is check.config


def _minimal_work(records: memoryview) -> int:
    """Return the minimum cost of the check, in records: the record count if it exceeds the initial budget or the batch
    is not compressed, else only the fixed cost of a batch."""
    if len(records) < HEADER_SIZE:
        return _BATCH_COST
    (count,) = _INT32.unpack_from(records, _COUNT_POSITION)
    if count <= 0 or (count <= RECORDS_BEFORE_FIRST_YIELD and records[_CODEC_POSITION] & _CODEC_MASK):
        return _BATCH_COST
    return _BATCH_COST + int(count)


def _estimated_work(records: memoryview) -> int:
    """Return a high estimate of the cost of decompression, in records. If it exceeds the budget, the records are copied
    first, which is cheap: the check then need not start again after a yield."""
    codec = records[_CODEC_POSITION] & _CODEC_MASK if len(records) > _CODEC_POSITION else 0
    return work_of(Codec(codec), _USUAL_RATIO * len(records)) if 0 < codec <= Codec.ZSTD else 0


def _memory_for(records: memoryview) -> int:
    """Bytes that decompressing the records may need; 0 for a corrupt batch, which is refused later."""
    try:
        batch = BatchView(records)
        return memory_needed(batch.codec, batch.records)
    except CorruptBatch:
        return 0
