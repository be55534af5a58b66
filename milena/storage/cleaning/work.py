"""What a round of cleaning needs to know of its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from milena.protocol.records.record_cursor import DEFAULT_LIMIT
from milena.protocol.types import Offset, ProducerId
from milena.runtime.disk import Disk
from milena.storage.cleaning.retained import LastRecord
from milena.storage.cleaning.source import SegmentToClean
from milena.storage.files.names import TXN_INDEX, segment_file
from milena.storage.files.txn_index import AbortedTxn, overlapping, read_aborted

if TYPE_CHECKING:
    from milena.storage.cleaning.bounds import Cleanable
    from milena.storage.log.unified_log import UnifiedLog


class Work(NamedTuple):
    """What is to be cleaned, and how."""

    folder: str
    segments: tuple[SegmentToClean, ...]
    """All of the log, in order. The last, which is active or only says where those before it end, is not read."""
    first_dirty: Offset
    end: Offset
    """Where the first segment begins that may not be cleaned."""
    now: int
    """ms."""
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval: int
    producers: Mapping[ProducerId, LastRecord]
    memory: int
    """Bytes of the offset map at most."""
    load_factor: float
    chunk: int
    """Bytes that are read at once, unless a batch is larger."""
    limit: int = DEFAULT_LIMIT
    """Bytes to which a compressed batch may grow."""


def work_on(log: UnifiedLog, cleanable: Cleanable, *, now: int, memory: int, load_factor: float, chunk: int) -> Work:
    """``now``: ms; ``memory``, ``load_factor``: see ``OffsetMap``; ``chunk``: see ``Work``. Raises OSError."""
    config = log.config
    return Work(
        log.folder,
        tuple(SegmentToClean(segment.base_offset, segment.size) for segment in log.segments),
        cleanable.first_dirty,
        cleanable.end,
        now,
        config.delete_retention_ms,
        config.segment_bytes,
        config.segment_index_bytes,
        config.index_interval_bytes,
        {producer_id: LastRecord(entry.last_offset, entry.epoch) for producer_id, entry in log.producers},
        memory,
        load_factor,
        chunk,
    )


def aborted_in(disk: Disk, work: Work, start: Offset, end: Offset) -> list[AbortedTxn]:
    """The aborted transactions with records in ``[start, end)``. Raises CorruptIndex, OSError."""
    aborted: list[AbortedTxn] = []
    for number, segment in enumerate(work.segments):
        following = number + 1
        if following < len(work.segments) and work.segments[following].base_offset <= start:
            continue
        path = f"{work.folder}/{segment_file(segment.base_offset, TXN_INDEX)}"
        growing = following == len(work.segments)  # the active one
        some, complete = overlapping(read_aborted(disk, path, growing=growing), start, end)
        aborted += some
        if complete:
            break
    return aborted
