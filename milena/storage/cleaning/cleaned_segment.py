"""Writes the segment that replaces cleaned ones. Its files have the suffix ``.cleaned`` until they are swapped in."""

from __future__ import annotations

from typing import Final

from milena.protocol.records.batch import BatchView
from milena.protocol.types import Offset
from milena.runtime.disk import Bytes, Disk
from milena.storage.files.handle_cache import HandleCache
from milena.storage.files.names import CLEANED, LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, TIME_INDEX, TXN_INDEX, segment_file
from milena.storage.files.offset_index import OffsetIndex
from milena.storage.files.time_index import NO_TIMESTAMP, TimedOffset, TimeIndex
from milena.storage.files.txn_index import AbortedTxn, append_aborted
from milena.storage.log.segment import MAX_RELATIVE_OFFSET

_WRITE_AT: Final = 1 << 20


class OffsetOverflow(Exception):
    """A segment has offsets that its indexes cannot hold."""


class CleanedSegment:
    """A new segment. Methods raise OSError. If ``complete`` is not reached, the caller removes the files."""

    def __init__(self, disk: Disk, folder: str, base_offset: Offset, index_interval: int) -> None:
        """Removes the files that an earlier attempt has left."""
        self._disk = disk
        self._base = base_offset
        self._paths = {suffix: f"{folder}/{segment_file(base_offset, suffix)}{CLEANED}" for suffix in SEGMENT_SUFFIXES}
        self._interval = index_interval
        self.remove()
        maps = HandleCache(2)
        self._offsets = OffsetIndex(disk, maps, self._paths[OFFSET_INDEX], base_offset, exists=False)
        self._times = TimeIndex(disk, maps, self._paths[TIME_INDEX], base_offset, exists=False)
        self._largest = TimedOffset(NO_TIMESTAMP, base_offset)
        self._since_index = 0
        self._unwritten = bytearray()
        self.size = 0
        """Bytes of the batches appended so far."""
        self._file = disk.open(self._paths[LOG], create=True)

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp appended so far (ms), -1 for none."""
        return self._largest.timestamp

    def append(self, data: Bytes) -> None:
        """Add one batch. Raises OffsetOverflow."""
        batch = BatchView(memoryview(data))
        if batch.last_offset - self._base > MAX_RELATIVE_OFFSET:
            raise OffsetOverflow(f"{self._paths[LOG]} would have offset {batch.last_offset}")
        if batch.max_timestamp > self._largest.timestamp and batch.record_count:
            self._largest = TimedOffset(batch.max_timestamp, batch.last_offset)
        if self._since_index > self._interval:
            self._offsets.add(batch.last_offset, self.size)
            self._times.add(self._largest)
            self._since_index = 0
        self._since_index += len(data)
        self.size += len(data)
        self._unwritten += data
        if len(self._unwritten) >= _WRITE_AT:
            self._write()

    def complete(self, aborted: list[AbortedTxn], modified_ms: int) -> None:
        """Write and sync all files. ``aborted``: the entries of the transaction index. ``modified_ms``: the
        modification time of the last replaced segment, which is the age of records without timestamps."""
        self._write()
        self._times.add(self._largest)
        self._offsets.write()
        self._times.write()
        for entry in aborted:
            append_aborted(self._disk, self._paths[TXN_INDEX], entry)
        self._file.sync()
        self.close()
        self._disk.set_modified_ms(self._paths[LOG], modified_ms)
        for suffix in (OFFSET_INDEX, TIME_INDEX, *((TXN_INDEX,) if aborted else ())):
            file = self._disk.open(self._paths[suffix])
            try:
                file.sync()
            finally:
                file.close()

    def close(self) -> None:
        """Close the file; does nothing if it is closed."""
        self._file.close()

    def remove(self) -> None:
        """Remove the files, as far as they exist."""
        for path in self._paths.values():
            self._disk.remove(path)

    def _write(self) -> None:
        if self._unwritten:
            self._file.append((self._unwritten,))
            self._unwritten = bytearray()
