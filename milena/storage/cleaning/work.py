"""The input of a round of cleaning: what the worker must know of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from milena.protocol.records.record_cursor import DEFAULT_LIMIT, UNLIMITED_RECORD
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
    """The segments to clean, and the parameters."""

    folder: str
    segments: tuple[SegmentToClean, ...]
    """All segments of the log, in order. The last one is not read: it is active, or only marks the end of the
    others."""
    first_dirty: Offset
    end: Offset
    """The first uncleanable offset, where a segment begins."""
    now: int
    """ms."""
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval: int
    producers: Mapping[ProducerId, LastRecord]
    memory: int
    """Maximum bytes of the offset map."""
    load_factor: float
    chunk: int
    """Bytes of a read, unless a batch is larger."""
    limit: int = DEFAULT_LIMIT
    """The maximum decompressed size of a batch (bytes)."""
    longest: int = UNLIMITED_RECORD
    """The maximum size of a record of a compressed batch (bytes)."""
    keeps_epochs: bool = True
    """Whether an empty batch replaces the first batch of a leader epoch."""


def work_on(log: UnifiedLog, cleanable: Cleanable, *, now: int, memory: int, load_factor: float, chunk: int) -> Work:
    """Return the work of a round. ``now``: ms; ``memory``, ``load_factor``: see ``OffsetMap``; ``chunk``: see ``Work``.
    Raises OSError."""
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
        longest=config.max_decompressed_message_bytes,
    )


def aborted_in(disk: Disk, work: Work, start: Offset, end: Offset) -> list[AbortedTxn]:
    """Return the aborted transactions with records in ``[start, end)``. Raises CorruptIndex, OSError."""
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
