"""Checks and appends the batches of a Produce request in order: at once if that is little work, else in slices.

A batch may expand to any size when it is decompressed, and a request may contain many batches. Work beyond ``AT_ONCE``
continues in slices (``node.serving.sliced_work``), on copies, since the receive buffer is needed again. The order of
batches does not change: earlier batches are already appended, later ones follow. A batch that was checked over several
slices is appended if this broker still leads the partition and its configuration is the same; producer states are
checked with the append.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from milena.broker.replica.partition import Partition
from milena.protocol.records.batch import HEADER_SIZE, BatchView, Codec, CorruptBatch
from milena.protocol.records.decompression import memory_needed
from milena.protocol.records.record_scan import STEP, work_of
from milena.storage.log.append_info import AppendInfo
from milena.storage.log.validation import LogValidator

AT_ONCE: Final = 4 * STEP
"""Records (or equivalent work) that one request may have checked in the step of the loop in which it arrives."""
SLICE: Final = 2 * STEP
"""The same for a slice: about a millisecond in the pure form."""
_RATIO: Final = 16
"""Few batches grow more than so many times when they are decompressed."""
_INT32: Final = Struct(">i")
_COUNT_AT: Final = 57
_CODEC_AT: Final = 22
_CODEC_MASK: Final = 0x07
_EACH: Final = 50
"""The fixed cost of a batch, in records."""


Wanted: TypeAlias = "tuple[str | None, UUID | None, int, memoryview | None]"
"""A topic by name or id, a partition, and its records as in the request."""


class Rest(NamedTuple):
    """The work that is left to be done in slices."""

    size: int
    """Bytes that were copied."""
    memory: int
    """Bytes that decompressing its batches may need at one time."""


PAUSE: Final = Rest(0, 0)
Appending: TypeAlias = Generator[Rest, None, AppendInfo]
"""Yields when a slice ends. The first yield of a request says what the rest of it needs."""


class CheckedAppends:
    """The appends of one request. ``append`` is called for ``wanted`` in order. Once the request is sliced, copies
    replace its records, unless they were ``copied`` before."""

    __slots__ = ("_acks", "_copied", "_left", "_sliced", "_wanted")

    def __init__(self, wanted: list[Wanted], acks: int, *, copied: bool) -> None:
        self._wanted = wanted
        self._acks = acks
        self._left = AT_ONCE
        self._sliced = copied
        self._copied = -1
        """The place whose records were copied before they were checked."""

    def append(self, place: int, partition: Partition, find: Callable[[Wanted], Partition]) -> AppendInfo | Appending:
        """Check and append ``wanted[place]`` to ``partition``. If that is more than a little work, the rest is left to
        steps, which append to the partition that ``find`` returns by then. Both raise KafkaError, and append nothing in
        that case."""
        records = self._wanted[place][3]
        assert records is not None
        check = None
        self._left -= _work_without_pause(records)
        if self._left >= 0:
            if not self._sliced and _work_expected(records) > self._left:
                records = self._copy(place, records)
            begun = partition.begin_append(records, self._acks)
            if isinstance(begun, AppendInfo):
                return begun
            check = begun
        return self._in_steps(place, partition, find, check)

    def _in_steps(
        self, place: int, partition: Partition, find: Callable[[Wanted], Partition], check: LogValidator | None
    ) -> Appending:
        """``check``: the one that was begun in this slice, or None if the slice has ended."""
        if check is None:
            yield self._next_slice(place)
            partition = find(self._wanted[place])
        while True:
            if check is None:
                records = self._wanted[place][3]
                assert records is not None
                begun = partition.begin_append(records, self._acks)
                if isinstance(begun, AppendInfo):
                    return begun
                check = begun
            finished = yield from self._finished(check, place)
            if not self._sliced:
                return partition.append_validated(check, self._acks)
            before, partition = partition, find(self._wanted[place])
            if finished and before is partition and _is_as_checked(partition, check):
                return partition.append_validated(check, self._acks)
            check = None

    def _finished(self, check: LogValidator, place: int) -> Generator[Rest, None, bool]:
        """Whether ``check`` was finished. If not, slicing begins, and it must start again with copies of the
        records."""
        while (work := check.advance()) is not None:
            self._left -= work
            if self._left < 0:
                on_copy = self._sliced or self._copied == place
                yield self._next_slice(place)
                if not on_copy:
                    return False
        return True

    def _next_slice(self, place: int) -> Rest:
        """What the request yields before its next slice. From the first one on, the records are copies."""
        self._left = SLICE
        if self._sliced:
            return PAUSE
        self._sliced = True
        size = memory = 0
        for at in range(place, len(self._wanted)):
            records = self._wanted[at][3]
            if records is not None:
                if at != self._copied:
                    records = self._copy(at, records)
                size += len(records)
                memory = max(memory, _memory_for(records))
        return Rest(size, memory)

    def _copy(self, place: int, records: memoryview) -> memoryview:
        name, topic_id, index, _ = self._wanted[place]
        records = memoryview(bytearray(records))
        self._wanted[place] = (name, topic_id, index, records)
        self._copied = place
        return records


def _is_as_checked(partition: Partition, check: LogValidator) -> bool:
    """Whether the check still applies: the topic's configuration may have changed meanwhile."""
    return partition.log is not None and partition.log.config is check.config


def _work_without_pause(records: memoryview) -> int:
    """How many records are checked before the first pause; all of them if there are certain to be many pauses."""
    if len(records) < HEADER_SIZE:
        return _EACH
    (count,) = _INT32.unpack_from(records, _COUNT_AT)
    if count <= 0 or (count <= AT_ONCE and records[_CODEC_AT] & _CODEC_MASK):
        return _EACH
    return _EACH + int(count)


def _work_expected(records: memoryview) -> int:
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
