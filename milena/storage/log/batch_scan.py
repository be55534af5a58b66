"""Iterates over the batches of a log file by their headers, without reading the records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

from milena.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchView, CorruptBatch
from milena.protocol.records.crc import crc32c
from milena.runtime.disk import File

_HEADER: Final = Struct(">qiibIhiqqqhii")
_CRC_FROM: Final = 21
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_CHUNK: Final = 1 << 20
LOOKUP_CHUNK: Final = 8 << 10
"""Bytes per read if only a few headers are needed."""


class Source(Protocol):
    """The source of a log's bytes: a file, or a buffer."""

    def pread(self, length: int, position: int) -> bytes: ...


class ScannedBatch(NamedTuple):
    """The header and position of a batch, with the field names of ``protocol.records.batch.BatchView``."""

    position: int
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def is_transactional(self) -> bool:
        return self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & _CONTROL != 0


def scan_batches(
    file: Source, start: int, end: int, *, chunk: int = _CHUNK, whole: bool = True
) -> Iterator[ScannedBatch]:
    """Yield the batches in ``[start, end)``; ``start`` is a batch boundary. Without ``whole``, the last batch may
    extend beyond ``end``. ``chunk``: bytes per read.

    Raises CorruptBatch at bytes that are not a batch header and, with ``whole``, at a batch that extends beyond
    ``end``.
    """
    data, at = b"", start
    position = start
    while position < end:
        if position + HEADER_SIZE > end:
            if not whole:  # the last header is not complete either
                return
            raise CorruptBatch(f"{end - position} bytes at {position} are less than a batch header")
        if position + HEADER_SIZE > at + len(data):  # the next header is not in the buffer
            data, at = file.pread(min(max(chunk, HEADER_SIZE), end - position), position), position
            if len(data) < HEADER_SIZE:
                raise CorruptBatch(f"the file ends within the batch header at {position}")
        batch = ScannedBatch(position, *_HEADER.unpack_from(data, position - at))
        if batch.magic != MAGIC or batch.batch_length < HEADER_SIZE - LOG_OVERHEAD or batch.last_offset_delta < 0:
            raise CorruptBatch(f"no batch header at {position}")
        if whole and position + batch.size > end:
            raise CorruptBatch(f"the batch at {position} has {batch.size} bytes, {end - position} are left")
        yield batch
        position += batch.size


def end_of(file: File, base: int) -> int:
    """Return the offset after the last complete batch of a log file whose base offset is ``base``."""
    end = base
    try:
        for batch in scan_batches(file, 0, file.size, chunk=LOOKUP_CHUNK):
            end = batch.last_offset + 1
    except CorruptBatch:
        return end  # recovery truncates the file there, or a read raises the error
    return end


def read_batch(file: File, batch: ScannedBatch) -> BatchView:
    """Read the complete batch. Raises CorruptBatch if the file has become shorter."""
    return BatchView(memoryview(bytearray(file.pread(batch.size, batch.position))))


def has_valid_crc(file: Source, batch: ScannedBatch) -> bool:
    """Whether the checksum of ``batch`` is valid. Reads in chunks, since a damaged length may be as large as the
    file."""
    crc = 0
    position, end = batch.position + _CRC_FROM, batch.position + batch.size
    while position < end:
        data = file.pread(min(_CHUNK, end - position), position)
        if not data:
            return False
        crc = crc32c(data, crc)
        position += len(data)
    return crc == batch.crc


def pieces_of(batches: Sequence[BatchView], limit: int) -> Iterator[tuple[Sequence[BatchView], int]]:
    """Yield groups of batches that fit into a segment of ``limit`` bytes, with their size. A group has at least one."""
    start = size = 0
    for index, batch in enumerate(batches):
        if index > start and size + batch.size_in_bytes > limit:
            yield batches[start:index], size
            start, size = index, 0
        size += batch.size_in_bytes
    yield batches[start:], size
