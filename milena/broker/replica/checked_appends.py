"""What a Produce request asks for, checked and appended in order: at once if that is little work, else in slices.

A batch may grow to any size when it is opened, and a request may have many. What is more than ``AT_ONCE`` of work goes
on in slices (``node.serving.sliced_work``), from copies, since the receive buffer is needed again. All before it has
been appended by then, all after it comes after it. What was checked over several slices is appended if the partition
is still led here with the same configuration; producer states are looked at with the append.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from milena.broker.replica.partition import Partition
from milena.protocol.records.batch import HEADER_SIZE, BatchView, CorruptBatch
from milena.protocol.records.decompression import memory_needed
from milena.protocol.records.record_scan import STEP
from milena.storage.log.append_info import AppendInfo
from milena.storage.log.log_append import AppendCheck

AT_ONCE: Final = 3 * STEP
"""Records, or what counts as much, that one request may have checked in the step of the loop in which it comes."""
_INT32: Final = Struct(">i")
_COUNT_AT: Final = 57
_CODEC_AT: Final = 22
_CODEC_MASK: Final = 0x07
_EACH: Final = 50
"""A batch takes about the time of so many records, besides its own."""


Wanted: TypeAlias = "tuple[str | None, UUID | None, int, memoryview | None]"
"""A topic by name or id, a partition, and its records as the request has them."""


class Rest(NamedTuple):
    """What is left to be done in slices."""

    size: int
    """Bytes that were copied for it."""
    memory: int
    """Bytes that opening its batches may take at one time."""


PAUSE: Final = Rest(0, 0)
Appending: TypeAlias = Generator[Rest, None, AppendInfo]
"""Yields where a slice ends. The first that is yielded for a request tells what the rest of it takes."""


class CheckedAppends:
    """The appends of one request. ``wanted`` in the order in which ``append`` is called for them; copies take the place
    of its records once it is sliced, unless they have been ``copied`` before."""

    __slots__ = ("_acks", "_left", "_sliced", "_wanted")

    def __init__(self, wanted: list[Wanted], acks: int, *, copied: bool) -> None:
        self._wanted = wanted
        self._acks = acks
        self._left = AT_ONCE
        self._sliced = copied

    def append(self, place: int, partition: Partition, find: Callable[[Wanted], Partition]) -> AppendInfo | Appending:
        """Check and append ``wanted[place]`` to ``partition``. What is more than a little work is left to be done in
        steps, after several slices to the partition that ``find`` gives then. Both raise KafkaError; then nothing has
        been appended."""
        records = self._wanted[place][3]
        assert records is not None
        check = None
        self._left -= _work_without_pause(records)
        if self._left >= 0:
            begun = partition.append_or_check(records, self._acks)
            if isinstance(begun, AppendInfo):
                return begun
            check = begun
        return self._in_steps(place, partition, find, check)

    def _in_steps(
        self, place: int, partition: Partition, find: Callable[[Wanted], Partition], check: AppendCheck | None
    ) -> Appending:
        """``check``: the one that was begun in this slice, None if the slice has ended."""
        if check is None:
            yield self._next_slice(place)
            partition = find(self._wanted[place])
        while True:
            if check is None:
                records = self._wanted[place][3]
                assert records is not None
                begun = partition.append_or_check(records, self._acks)
                if isinstance(begun, AppendInfo):
                    return begun
                check = begun
            finished = yield from self._finished(check, place)
            if not self._sliced:
                return partition.append_checked(check, self._acks)
            before, partition = partition, find(self._wanted[place])
            if finished and before is partition and _is_as_checked(partition, check):
                return partition.append_checked(check, self._acks)
            check = None

    def _finished(self, check: AppendCheck, place: int) -> Generator[Rest, None, bool]:
        """Whether ``check`` came to its end: False: slices begin, with other records than it has."""
        while (work := check.advance()) is not None:
            self._left -= work
            if self._left < 0:
                sliced = self._sliced
                yield self._next_slice(place)
                if not sliced:
                    return False
        return True

    def _next_slice(self, place: int) -> Rest:
        """What the request yields before it. The first one: from here on the records are copies."""
        self._left = STEP
        if self._sliced:
            return PAUSE
        self._sliced = True
        size = memory = 0
        for at in range(place, len(self._wanted)):
            name, topic_id, index, records = self._wanted[at]
            if records is not None:
                records = memoryview(bytearray(records))
                self._wanted[at] = (name, topic_id, index, records)
                size += len(records)
                memory = max(memory, _memory_for(records))
        return Rest(size, memory)


def _is_as_checked(partition: Partition, check: AppendCheck) -> bool:
    """Whether what was checked is as the topic wants it now: its configuration may have changed meanwhile."""
    return partition.log is not None and partition.log.config is check.config


def _work_without_pause(records: memoryview) -> int:
    """How many records are checked before the first pause; where there will surely be many pauses, all of them."""
    if len(records) < HEADER_SIZE:
        return _EACH
    (count,) = _INT32.unpack_from(records, _COUNT_AT)
    if count <= 0 or (count <= AT_ONCE and records[_CODEC_AT] & _CODEC_MASK):
        return _EACH
    return _EACH + int(count)


def _memory_for(records: memoryview) -> int:
    try:
        batch = BatchView(records)
        return memory_needed(batch.codec, batch.records)
    except CorruptBatch:
        return 0
