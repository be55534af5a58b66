"""Reads the batches of a segment that is cleaned, and verifies each: a rebuilt batch gets a new checksum, which would
hide damage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from milena.protocol.records.batch import HEADER_SIZE, NO_LEADER_EPOCH, BatchView, CorruptBatch, batch_size_at
from milena.protocol.types import Offset
from milena.runtime.disk import Disk, File
from milena.storage.files.names import LOG, OFFSET_INDEX, TIME_INDEX, segment_file
from milena.storage.log.batch_scan import has_valid_crc, scan_batches

CHUNK: Final = 1 << 20
"""Bytes that are read at once."""


class SegmentToClean(NamedTuple):
    """A segment to clean. Sizes are bytes of the log file and of the indexes. Index sizes are 0 until
    ``with_index_sizes``, since they cost a disk access for each segment."""

    base_offset: Offset
    size: int
    offset_index_size: int = 0
    time_index_size: int = 0


def with_index_sizes(disk: Disk, folder: str, segment: SegmentToClean) -> SegmentToClean:
    """Return ``segment`` with the sizes of its indexes. Raises OSError."""

    def size(suffix: str) -> int:
        path = f"{folder}/{segment_file(segment.base_offset, suffix)}"
        return disk.size(path) if disk.exists(path) else 0

    return segment._replace(offset_index_size=size(OFFSET_INDEX), time_index_size=size(TIME_INDEX))


def open_log(disk: Disk, folder: str, segment: SegmentToClean) -> File:
    """Open the log file of ``segment``. Raises OSError."""
    return disk.open(f"{folder}/{segment_file(segment.base_offset, LOG)}", read_only=True)


def read_batches(
    file: File, segment: SegmentToClean, following: Offset, *, start: int = 0, chunk: int = CHUNK
) -> Iterator[BatchView]:
    """Yield the batches from the one that contains ``start`` on. ``file``: returned by ``open_log``; the caller closes
    it. ``following``: the base offset of the next segment. At most ``chunk`` bytes, or one batch, are in memory.

    Raises CorruptBatch, OSError.
    """
    next_offset, epoch = segment.base_offset, NO_LEADER_EPOCH
    try:
        for batch in _batches(file, segment.size, chunk):
            batch.verify_crc()
            # The checksum covers neither the base offset nor the leader epoch.
            if not next_offset <= batch.base_offset <= batch.last_offset < following:
                raise CorruptBatch(
                    f"a batch from {batch.base_offset} to {batch.last_offset} is not within {next_offset} and "
                    f"{following}, where the next segment begins"
                )
            if batch.leader_epoch < epoch:
                raise CorruptBatch(f"the batch at {batch.base_offset} has epoch {batch.leader_epoch} after {epoch}")
            next_offset, epoch = batch.next_offset, batch.leader_epoch
            if batch.last_offset >= start:
                yield batch
    except CorruptBatch as error:
        raise CorruptBatch(f"{file.path}: {error}") from error


def _batches(file: File, end: int, chunk: int) -> Iterator[BatchView]:
    data, at = memoryview(b""), 0
    position = 0
    while position < end:
        begin = position - at
        size = batch_size_at(data, begin)
        if size is None or begin + size > len(data):
            if size is not None and size > chunk:
                # A damaged length may be as large as the file, so the batch is not read at once.
                large = next(scan_batches(file, position, end, chunk=HEADER_SIZE))
                if not has_valid_crc(file, large):
                    raise CorruptBatch(f"the batch at {position} has a wrong checksum")
            if size is not None and position + size > end:
                raise CorruptBatch(f"the batch at {position} has {size} bytes, {end - position} are there")
            loaded = memoryview(file.pread(min(max(chunk, size or HEADER_SIZE), end - position), position))
            if len(loaded) < (size or HEADER_SIZE):
                raise CorruptBatch(f"the file ends within the batch at {position}")
            data, at = loaded, position
            continue
        yield BatchView(data[begin : begin + size])
        position += size
