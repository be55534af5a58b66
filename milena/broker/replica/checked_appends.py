"""Checks and appends the batches of a Produce request in order: at once if that is little work, else cooperatively.

A batch may expand to any size when it is decompressed, and a request may contain many batches. Before the first yield
the records that are left are copied, since the receive buffer is used again. The order of batches does not change:
earlier batches are already appended, later ones follow. A batch whose check yielded is appended if this broker still
leads the partition and its configuration is the same; producer states are checked with the append.
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
from milena.storage.log.append_info import AppendInfo
from milena.storage.log.validation import LogValidator

RECORDS_BEFORE_FIRST_YIELD: Final = 4 * STEP
"""Records (or equivalent work) of one request that are checked when it arrives."""
RECORDS_PER_YIELD: Final = 2 * STEP
"""The same between two yields: about a millisecond in the pure form."""
_RATIO: Final = 16
"""Few batches grow more than so many times when they are decompressed."""
_INT32: Final = Struct(">i")
_COUNT_AT: Final = 57
_CODEC_AT: Final = 22
_CODEC_MASK: Final = 0x07
_EACH: Final = 50
"""The fixed cost of a batch, in records."""


Target: TypeAlias = "tuple[str | None, UUID | None, int, memoryview | None]"
"""A topic by name or id, a partition, and its records as in the request."""


class MemoryNeeds(Protocol):
    """The request, which learns how much memory the rest of its work needs."""

    memory: int


class CheckedAppends:
    """The appends of one request. ``append`` is called for each of ``targets`` in order."""

    __slots__ = ("_acks", "_copied", "_left", "_memory", "_on_copies", "_targets")

    def __init__(self, targets: list[Target], acks: int, memory: MemoryNeeds, *, copied: bool) -> None:
        """``copied``: the records are not in the receive buffer. Else copies replace them before the first yield, and
        ``memory`` is set to the bytes that decompressing one of them may need."""
        self._targets = targets
        self._acks = acks
        self._memory = memory
        self._left = RECORDS_BEFORE_FIRST_YIELD
        self._on_copies = copied
        self._copied = -1
        """The position whose records were copied before they were checked."""

    def append(
        self, position: int, partition: Partition, find: Callable[[Target], Partition]
    ) -> AppendInfo | Cooperative[AppendInfo]:
        """Check and append ``targets[position]`` to ``partition``. If that is more than a little work, return the rest
        of it, which appends to the partition that ``find`` returns by then. Both raise KafkaError, and append nothing
        in that case."""
        records = self._targets[position][3]
        assert records is not None
        check = None
        self._left -= _work_before_first_pause(records)
        if self._left >= 0:
            if not self._on_copies and _estimated_work(records) > self._left:
                records = self._copy(position, records)
            begun = partition.begin_append(records, self._acks)
            if isinstance(begun, AppendInfo):
                return begun
            check = begun
        return self._checked(position, partition, find, check)

    def _checked(
        self, position: int, partition: Partition, find: Callable[[Target], Partition], check: LogValidator | None
    ) -> Cooperative[AppendInfo]:
        """Finish ``check``, then append. ``check`` is None if it has not begun, for lack of budget."""
        if check is None:
            self._before_yield(position)
            yield
            partition = find(self._targets[position])
        while True:
            if check is None:
                records = self._targets[position][3]
                assert records is not None
                begun = partition.begin_append(records, self._acks)
                if isinstance(begun, AppendInfo):
                    return begun
                check = begun
            finished = yield from self._finished(check, position)
            if not self._on_copies:  # there was no yield, so nothing has changed
                return partition.append_validated(check, self._acks)
            before, partition = partition, find(self._targets[position])
            if finished and before is partition and _is_as_checked(partition, check):
                return partition.append_validated(check, self._acks)
            check = None

    def _finished(self, check: LogValidator, position: int) -> Cooperative[bool]:
        """Run ``check``. Returns False if it must start again, because its records were in the receive buffer at the
        first yield."""
        while (work := check.advance()) is not None:
            self._left -= work
            if self._left < 0:
                on_copy = self._on_copies or self._copied == position
                self._before_yield(position)
                yield
                if not on_copy:
                    return False
        return True

    def _before_yield(self, position: int) -> None:
        """Refill the budget. Before the first yield, copy the records from ``position`` on."""
        self._left = RECORDS_PER_YIELD
        if self._on_copies:
            return
        self._on_copies = True
        memory = 1
        for at in range(position, len(self._targets)):
            records = self._targets[at][3]
            if records is not None:
                if at != self._copied:
                    records = self._copy(at, records)
                memory = max(memory, _memory_for(records))
        self._memory.memory = memory

    def _copy(self, position: int, records: memoryview) -> memoryview:
        name, topic_id, index, _ = self._targets[position]
        records = memoryview(bytearray(records))
        self._targets[position] = (name, topic_id, index, records)
        self._copied = position
        return records


def _is_as_checked(partition: Partition, check: LogValidator) -> bool:
    """Whether the check still applies: the topic's configuration may have changed since."""
    return partition.log is not None and partition.log.config is check.config


def _work_before_first_pause(records: memoryview) -> int:
    """How many records are checked before the first pause; all of them if there are certain to be many pauses."""
    if len(records) < HEADER_SIZE:
        return _EACH
    (count,) = _INT32.unpack_from(records, _COUNT_AT)
    if count <= 0 or (count <= RECORDS_BEFORE_FIRST_YIELD and records[_CODEC_AT] & _CODEC_MASK):
        return _EACH
    return _EACH + int(count)


def _estimated_work(records: memoryview) -> int:
    """A high guess at how long it takes to decompress the records. To copy them first costs next to nothing, and a
    check that turns out to be long then need not begin again."""
    codec = records[_CODEC_AT] & _CODEC_MASK if len(records) > _CODEC_AT else 0
    return work_of(Codec(codec), _RATIO * len(records)) if 0 < codec <= Codec.ZSTD else 0


def _memory_for(records: memoryview) -> int:
    try:
        batch = BatchView(records)
        return memory_needed(batch.codec, batch.records)
    except CorruptBatch:
        return 0
