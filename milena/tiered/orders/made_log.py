"""The log that somebody else has made of a group, batch by batch: none is loaded that is larger than it may be."""

from __future__ import annotations

from milena.protocol.records.batch import HEADER_SIZE, BatchView, CorruptBatch, batch_size_at
from milena.protocol.types import Offset
from milena.runtime.disk import File
from milena.storage.cleaning.source import SegmentToClean, read_batches


class MadeLog:
    """Blocks. ``file`` is closed by whoever opened it."""

    def __init__(self, file: File, segment: SegmentToClean, following: Offset, chunk: int) -> None:
        """See ``read_batches``."""
        self._file = file
        self._at = 0
        self._batches = read_batches(file, segment, following, chunk=chunk)

    def next(self, most: int) -> BatchView | None:
        """None at the end. Raises CorruptBatch, also for one of more than ``most`` bytes, OSError."""
        size = batch_size_at(memoryview(self._file.pread(HEADER_SIZE, self._at)), 0)
        if size is not None and size > most:
            raise CorruptBatch(f"{self._file.path}: a batch of {size} bytes, where {most} are allowed")
        found = next(self._batches, None)
        self._at += 0 if found is None else found.size_in_bytes
        return found
