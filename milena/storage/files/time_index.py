"""The time index of a segment: the largest timestamp up to some offsets.

Entries of 12 bytes: the largest timestamp so far (int64, ms) and the last offset of its batch, relative to the
segment's base (int32). An entry (t, o) means: the batch that ends at o has a record with timestamp t, and no record up
to o has a larger timestamp.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from milena.runtime.disk import Disk
from milena.storage.files.handle_cache import HandleCache
from milena.storage.files.index_file import CorruptIndex, IndexFile

_ENTRY: Final = Struct(">qi")
ENTRY_SIZE: Final = _ENTRY.size
NO_TIMESTAMP: Final = -1


class TimedOffset(NamedTuple):
    """``timestamp`` (ms, -1 for none) was first reached in the batch that ends at ``offset``."""

    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    """Takes and returns absolute offsets; they are relative only in the file."""

    __slots__ = ("_last_timestamp", "base_offset")

    def __init__(self, disk: Disk, maps: HandleCache, path: str, base_offset: int, *, exists: bool) -> None:
        super().__init__(disk, maps, path, _ENTRY, exists=exists)
        self.base_offset = base_offset
        self._last_timestamp: int | None = None

    @property
    def last(self) -> TimedOffset:
        """The last entry, (-1, base offset) if there is none."""
        count = len(self)
        if not count:
            return TimedOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = self[count - 1]
        return TimedOffset(timestamp, self.base_offset + relative)

    def last_before(self, offset: int) -> TimedOffset:
        """The last entry before ``offset``, (-1, base offset) if there is none."""
        slot = self.floor_by_second(offset - self.base_offset - 1)
        if slot < 0:
            return TimedOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = self[slot]
        return TimedOffset(timestamp, self.base_offset + relative)

    def check(self) -> None:
        """Raise CorruptIndex if the last entry is invalid or less than the first."""
        if count := len(self):
            timestamp, relative = self[count - 1]
            if relative < 0 or timestamp < self[0][0]:
                raise CorruptIndex(f"{self.path} ends with timestamp {timestamp}, offset +{relative}")

    def lookup(self, timestamp: int) -> int:
        """Return an offset in or before the first batch that may have a record at ``timestamp`` or later.

        A search reads batches from there on. The batch of that offset may contain such records before the offset."""
        slot = self.floor_by_first(timestamp)
        return self.base_offset + (self[slot][1] if slot >= 0 else 0)

    def add(self, entry: TimedOffset) -> None:
        """Add the largest timestamp so far. No effect if it is not greater than the last entry's."""
        if self._last_timestamp is None:
            self._last_timestamp = self.last.timestamp
        if entry.timestamp > self._last_timestamp:
            self._last_timestamp = entry.timestamp
            self.append(entry.timestamp, entry.offset - self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries for ``offset`` and later."""
        self._last_timestamp = None
        self.truncate(self.floor_by_second(offset - self.base_offset - 1) + 1)


def entries(data: bytes) -> list[tuple[int, int]]:
    """Decode the entries of an index: a timestamp (ms) and a relative offset each. An incomplete entry at the end is
    skipped."""
    return [(first, second) for first, second in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE])]


def last_entry(data: bytes) -> tuple[int, int] | None:
    """Decode the last entry of an index, None if it is empty."""
    count = len(data) // ENTRY_SIZE
    return entries(data[(count - 1) * ENTRY_SIZE : count * ENTRY_SIZE])[0] if count else None
